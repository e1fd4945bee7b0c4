// How it works. Values fall into *bins* by the leading bits of their magnitude, eight to each power of two. From the
// largest bin down, squares are added up until they are enough; of the last bin only a part is needed.
#include "gradient/energy.hpp"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <vector>

namespace tulle::gradient {
namespace {

// Exponent and three bits of the mantissa. Fewer bits make the last bin, of which a part is guessed, too wide.
constexpr std::uint32_t kMagnitudeBits = 0x7fffffff, kDroppedBits = 20;
constexpr std::size_t kBins = 1 << 11;
// Less misses the few large values that carry most of the energy; more takes as long as selecting does.
constexpr std::size_t kMostValues = 1 << 18, kBlock = 64;

struct Bin {
  std::uint32_t count = 0;
  double energy = 0;
};

void add(std::span<const float> values, std::span<Bin> bins) {
  for (const float value : values) {
    Bin& bin = bins[(std::bit_cast<std::uint32_t>(value) & kMagnitudeBits) >> kDroppedBits];
    bin.count += 1;
    bin.energy += double{value} * value;
  }
}

// All values, or as many blocks as may be looked at.
std::size_t add_sample(std::span<const float> values, std::span<Bin> bins) {
  if (values.size() <= kMostValues) {
    add(values, bins);
    return values.size();
  }
  constexpr std::size_t kBlocks = kMostValues / kBlock;
  for (std::size_t block = 0; block < kBlocks; ++block) {
    const std::size_t place = block * (values.size() - kBlock) / (kBlocks - 1);
    add(values.subspan(place, kBlock), bins);
  }
  return kMostValues;
}

}  // namespace

double density_for_energy(std::span<const float> values, double share) {
  if (values.empty()) return 1;
  std::vector<Bin> bins(kBins);
  const auto looked_at = static_cast<double>(add_sample(values, bins));
  double wanted = 0;
  for (const Bin& bin : bins) wanted += bin.energy;
  wanted *= share;
  double count = 0;
  for (std::size_t place = kBins; place > 0 && wanted > 0; --place) {
    const Bin& bin = bins[place - 1];
    if (bin.energy <= 0) continue;
    count += bin.count * std::min(1.0, wanted / bin.energy);
    wanted -= bin.energy;
  }
  const double one_value = 1 / static_cast<double>(values.size());
  return std::clamp(count / looked_at, one_value, 1.0);
}

}  // namespace tulle::gradient
