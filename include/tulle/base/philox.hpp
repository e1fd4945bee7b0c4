// Philox4x32-10: a counter-based generator (Salmon et al., SC'11). The n-th number depends on the seed and on n alone,
// so results do not change with the number of threads or the order of calls.
//
// Threads: philox() and Philox::at() may be called from any thread; what draws the next number, by one at a time.
#pragma once

#include <array>
#include <cstdint>

#pragma GCC visibility push(default)
namespace tulle {

/// Four 32-bit numbers for a 128-bit counter and a 64-bit key, after 10 rounds.
constexpr std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> counter, std::array<std::uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t product0 = std::uint64_t{0xD2511F53} * counter[0];
    const std::uint64_t product1 = std::uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<std::uint32_t>(product1 >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(product1),
               static_cast<std::uint32_t>(product0 >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(product0)};
    key = {key[0] + 0x9E3779B9u, key[1] + 0xBB67AE85u};
  }
  return counter;
}

/// A sequence of numbers for (seed, stream). Also a standard uniform random bit generator.
class Philox {
 public:
  using result_type = std::uint64_t;
  explicit Philox(std::uint64_t seed, std::uint64_t stream = 0) : seed_(seed), stream_(stream) {}

  static constexpr result_type min() { return 0; }
  static constexpr result_type max() { return ~result_type{0}; }

  result_type operator()() { return at(next_++); }
  /// The n-th number of the sequence, whatever was drawn before.
  result_type at(std::uint64_t n) const {
    const auto block = philox({low(n), high(n), low(stream_), high(stream_)}, {low(seed_), high(seed_)});
    return std::uint64_t{block[1]} << 32 | block[0];
  }
  /// Draws the next number, uniform in [0, 1).
  double uniform() { return static_cast<double>(operator()() >> 11) * 0x1p-53; }
  /// Draws the next number, uniform in [0, bound). REQUIRES: bound > 0. The bias is below bound / 2^64.
  std::uint64_t below(std::uint64_t bound) {
    __extension__ using Wide = unsigned __int128;  // the marker, so that -pedantic has nothing to say
    return static_cast<std::uint64_t>((static_cast<Wide>(operator()()) * bound) >> 64);
  }

 private:
  static constexpr std::uint32_t low(std::uint64_t word) { return static_cast<std::uint32_t>(word); }
  static constexpr std::uint32_t high(std::uint64_t word) { return static_cast<std::uint32_t>(word >> 32); }

  std::uint64_t seed_;
  std::uint64_t stream_;
  std::uint64_t next_ = 0;
};

}  // namespace tulle
#pragma GCC visibility pop
