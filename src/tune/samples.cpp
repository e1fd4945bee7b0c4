#include "tune/samples.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>

#include "tulle/base/error.hpp"

namespace tulle {
namespace {

[[noreturn]] void reject(int from, std::string_view what) {
  throw Error(ErrorKind::bad_message, fmt::format("rank {} sent as samples of a probe: {}", from, what))
      .with_peer(from);
}

// The numbers of a message, all of them finite: a profile is made of them.
std::span<const double> numbers_of(const Buffer& packed, int from) {
  if (packed.is_phantom() || packed.size() % sizeof(double) != 0) reject(from, "bytes that are no numbers");
  const std::span<const double> numbers = packed.as<double>();
  if (!std::ranges::all_of(numbers, [](double number) { return std::isfinite(number); })) {
    reject(from, "a number that is not finite");
  }
  return numbers;
}

// How many of the numbers come next.
std::size_t take_count(std::span<const double>& numbers, int from) {
  if (numbers.empty()) reject(from, "fewer measurements than there are");
  const double count = numbers[0];
  numbers = numbers.subspan(1);
  if (!(count >= 0 && count <= static_cast<double>(numbers.size())) || count != std::floor(count)) {
    reject(from, fmt::format("{} numbers in a message that has {}", count, numbers.size()));
  }
  return static_cast<std::size_t>(count);
}

}  // namespace

Buffer Samples::pack() const {
  std::vector<double> numbers;
  for (const auto& [name, samples] : samples_) {
    numbers.push_back(static_cast<double>(samples.size()));
    numbers.insert(numbers.end(), samples.begin(), samples.end());
  }
  return Buffer::copy_of(std::as_bytes(std::span(numbers)));
}

void Samples::add(const Buffer& packed, int from) {
  std::span<const double> numbers = numbers_of(packed, from);
  for (auto& [name, samples] : samples_) {
    const std::size_t count = take_count(numbers, from);
    samples.insert(samples.end(), numbers.begin(), numbers.begin() + static_cast<std::ptrdiff_t>(count));
    numbers = numbers.subspan(count);
  }
  if (!numbers.empty()) reject(from, "more numbers than their counts say");
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

Summary Samples::unpack(const Buffer& packed, int from) const {
  if (numbers_of(packed, from).size_bytes() != samples_.size() * sizeof(Quartiles)) {
    reject(from, "quartiles of other measurements");
  }
  Summary summary;
  std::span<const Quartiles> spreads = packed.as<Quartiles>();
  for (const auto& [name, samples] : samples_) {
    summary[name] = spreads.front();
    spreads = spreads.subspan(1);
  }
  return summary;
}

}  // namespace tulle
