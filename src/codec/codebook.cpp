// codebook: 2^bits bins around the mean, each decoded as the mean of its values. Biased; made for error feedback.
//
// How it works. The bins are σ·sigma/2^bits wide, σ being the standard deviation of the values (by n − 1), and their
// middles lie at whole multiples of that width from the mean, half of them below; the first and the last also take what
// lies beyond. What is decoded is not the middle of a bin but the mean of what fell into it: of all values to decode a
// bin to, the one with the smallest squared error. The mean of an array is kept therefore, to rounding.
//
// Bytes: 4 for the parameters, 4 for each of the 2^bits means, bits/8 for each value. Hivemind's 8-bit coding, which
// INTELLECT-1 sends; with 2 bits SparseLoCo's.
#include <algorithm>
#include <array>
#include <cmath>

#include "codec/float_kernels.hpp"
#include "codec/levels.hpp"
#include "codec/value_codings.hpp"

namespace tulle {
namespace {

constexpr std::size_t kFrontBytes = 4;
constexpr int kMostBits = 8;
// Sums that do not wait for one another. More would leave the registers, and for 256 bins the L1 cache.
constexpr std::size_t kLanes = 4;

std::size_t codes_at(int bits) { return kFrontBytes + (sizeof(float) << bits); }

std::uint64_t bytes_of(int bits, std::uint64_t count) { return codes_at(bits) + packed_bytes(count, bits); }

/// Where the bins are: the code of v is the nearest whole number to (v − mean)·bins_per_unit, counted from the middle.
struct Bins {
  double mean = 0;
  double bins_per_unit = 0;
  int count = 0;

  std::uint8_t code_of(float value) const {
    const double bin = std::floor((static_cast<double>(value) - mean) * bins_per_unit + (count / 2 + 0.5));
    return static_cast<std::uint8_t>(std::clamp(bin, 0.0, count - 1.0));
  }
};

double sum_of_squares_around(double mean, std::span<const float> values) {
  std::array<double, 8> lanes{};
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double distance = static_cast<double>(values[i]) - mean;
    lanes[i % lanes.size()] += distance * distance;
  }
  double sum = 0;
  for (const double lane : lanes) sum += lane;
  return sum;
}

// Values that are all alike fall into the bin in the middle.
Bins bins_for(const ValueCodec& codec, std::span<const float> values) {
  Bins bins{.count = 1 << codec.bits};
  if (values.empty()) return bins;
  const auto count = static_cast<double>(values.size());
  const SumsBySign sums = sums_by_sign(values);
  bins.mean = (sums.negative + sums.positive) / count;
  const double deviation = std::sqrt(sum_of_squares_around(bins.mean, values) / std::max(count - 1, 1.0));
  const double width = codec.sigma * deviation / bins.count;
  if (width > 0) bins.bins_per_unit = std::min(1 / width, std::numeric_limits<double>::max());
  return bins;
}

/// Sums and numbers of the values of each bin.
class BinSums {
 public:
  void add(std::size_t lane, std::uint8_t code, float value) {
    sums_[lane][code] += static_cast<double>(value);
    counts_[lane][code] += 1;
  }
  /// 0 for a bin that is empty.
  float mean(std::size_t code) const {
    double sum = 0;
    std::uint64_t count = 0;
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      sum += sums_[lane][code];
      count += counts_[lane][code];
    }
    return count == 0 ? 0.0f : static_cast<float>(sum / static_cast<double>(count));
  }

 private:
  std::array<std::array<double, 1 << kMostBits>, kLanes> sums_{};
  std::array<std::array<std::uint64_t, 1 << kMostBits>, kLanes> counts_{};
};

BinSums fill_bins(const Bins& bins, std::span<const float> values, std::uint8_t* codes) {
  BinSums sums;
  for (std::size_t i = 0; i < values.size(); ++i) {
    codes[i] = bins.code_of(values[i]);
    sums.add(i % kLanes, codes[i], values[i]);
  }
  return sums;
}

// Eight codes of any width fill whole bytes.
void pack_eights(std::span<const std::uint8_t> codes, int bits, std::byte* bytes) {
  for (std::size_t i = 0; i < codes.size(); i += 8) {
    std::uint64_t word = 0;
    const std::size_t count = std::min<std::size_t>(8, codes.size() - i);
    for (std::size_t j = 0; j < count; ++j) word |= std::uint64_t{codes[i + j]} << (j * static_cast<unsigned>(bits));
    for (std::uint64_t b = 0; b < packed_bytes(count, bits); ++b) *bytes++ = static_cast<std::byte>(word >> (8 * b));
  }
}

void unpack_eights(const std::byte* bytes, int bits, std::span<std::uint8_t> codes) {
  const std::uint64_t mask = (std::uint64_t{1} << bits) - 1;
  for (std::size_t i = 0; i < codes.size(); i += 8) {
    std::uint64_t word = 0;
    const std::size_t count = std::min<std::size_t>(8, codes.size() - i);
    for (std::uint64_t b = 0; b < packed_bytes(count, bits); ++b) {
      word |= std::to_integer<std::uint64_t>(*bytes++) << (8 * b);
    }
    for (std::size_t j = 0; j < count; ++j) {
      codes[i + j] = static_cast<std::uint8_t>(word >> (j * static_cast<unsigned>(bits)) & mask);
    }
  }
}

bool has_kernel(int bits) { return bits == 2 || bits == 4 || bits == 8; }

int load_bits(std::span<const std::byte> bytes) {
  if (bytes.size() < kFrontBytes) reject_values("codebook", "the message ends before its parameters do");
  const int bits = std::to_integer<int>(bytes[0]);
  if (bits < 2 || bits > kMostBits) reject_values("codebook", fmt::format("bits is {}, expected 2 to 8", bits));
  if (std::any_of(bytes.begin() + 1, bytes.begin() + kFrontBytes, [](std::byte b) { return b != std::byte{0}; })) {
    reject_values("codebook", "reserved bytes are not zero");
  }
  return bits;
}

using Codebook = std::array<float, 1 << kMostBits>;

Codebook load_codebook(std::span<const std::byte> bytes, int bits) {
  Codebook means{};
  for (std::size_t code = 0; code < std::size_t{1} << bits; ++code) {
    means[code] = load_at<float>(bytes, kFrontBytes + code * sizeof(float));
    if (!std::isfinite(means[code])) {
      reject_values("codebook", fmt::format("the mean of bin {} is {}", code, means[code]));
    }
  }
  return means;
}

void require_zero_padding(std::span<const std::byte> bytes, std::uint64_t count, int bits) {
  const auto used = static_cast<unsigned>(count % 8 * static_cast<std::uint64_t>(bits) % 8);
  if (used != 0 && std::to_integer<unsigned>(bytes.back()) >> used != 0) {
    reject_values("codebook", "padding is not zero");
  }
}

}  // namespace

std::uint64_t codebook_bytes(const ValueCodec& codec, std::uint64_t count) { return bytes_of(codec.bits, count); }

Buffer encode_codebook(const ValueCodec& codec, std::span<const float> values, const RoundingKey&) {
  if (!std::isfinite(scale_of(ScaleNorm::max, values))) throw_not_finite("codebook", values);
  Buffer buffer = Buffer::allocate(bytes_of(codec.bits, values.size()));
  const auto bytes = buffer.as_mutable<std::byte>();
  store_at(bytes, 0, static_cast<std::uint32_t>(codec.bits));
  PoolVector<std::uint8_t> codes(values.size());
  const BinSums sums = fill_bins(bins_for(codec, values), values, codes.data());
  for (std::size_t code = 0; code < std::size_t{1} << codec.bits; ++code) {
    store_at(bytes, kFrontBytes + code * sizeof(float), sums.mean(code));
  }
  std::byte* const packed = bytes.data() + codes_at(codec.bits);
  has_kernel(codec.bits) ? pack_codes(codes, codec.bits, packed) : pack_eights(codes, codec.bits, packed);
  return buffer;
}

void decode_codebook(std::span<const std::byte> bytes, std::span<float> values, int) {
  const int bits = load_bits(bytes);
  expect_bytes("codebook", bytes, bytes_of(bits, values.size()));
  require_zero_padding(bytes, values.size(), bits);
  const Codebook means = load_codebook(bytes, bits);
  PoolVector<std::uint8_t> codes(values.size());
  const std::byte* const packed = bytes.data() + codes_at(bits);
  has_kernel(bits) ? unpack_codes(packed, bits, codes) : unpack_eights(packed, bits, codes);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = means[codes[i]];
}

}  // namespace tulle
