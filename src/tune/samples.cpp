#include "tune/samples.hpp"

#include <span>

namespace tulle {

Buffer Samples::pack() const {
  std::vector<double> numbers;
  for (const auto& [name, samples] : samples_) {
    numbers.push_back(static_cast<double>(samples.size()));
    numbers.insert(numbers.end(), samples.begin(), samples.end());
  }
  return Buffer::copy_of(std::as_bytes(std::span(numbers)));
}

void Samples::add(const Buffer& packed) {
  std::span<const double> numbers = packed.as<double>();
  for (auto& [name, samples] : samples_) {
    const std::span<const double> theirs = numbers.subspan(1, static_cast<std::size_t>(numbers[0]));
    samples.insert(samples.end(), theirs.begin(), theirs.end());
    numbers = numbers.subspan(1 + theirs.size());
  }
}

Summary Samples::summary() const {
  Summary summary;
  for (const auto& [name, samples] : samples_) summary[name] = quartiles(samples);
  return summary;
}

Buffer Samples::pack(const Summary& summary) {
  std::vector<Quartiles> spreads;
  for (const auto& [name, spread] : summary) spreads.push_back(spread);
  return Buffer::copy_of(std::as_bytes(std::span(spreads)));
}

Summary Samples::unpack(const Buffer& packed) const {
  Summary summary;
  std::span<const Quartiles> spreads = packed.as<Quartiles>();
  for (const auto& [name, samples] : samples_) {
    summary[name] = spreads.front();
    spreads = spreads.subspan(1);
  }
  return summary;
}

}  // namespace tulle
