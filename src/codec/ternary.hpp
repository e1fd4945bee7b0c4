// Five values of {−M, 0, M} in a byte: 3LC's base-3^5 encoding.
//
// A value is a *digit*: 0, 1 or 2 for −M, 0 or M. Five consecutive digits make a byte, the first the most significant:
// 81·d0 + 27·d1 + 9·d2 + 3·d3 + d4, from 0 to 242. The last group is filled up with the digit of zero.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace tulle {

inline constexpr std::size_t kDigitsAByte = 5;
inline constexpr std::uint8_t kZeroDigit = 1;
inline constexpr std::uint8_t kFiveZeros = 121;
inline constexpr unsigned kLargestQuintet = 242;
/// What a thread takes at a time: many parts to share, and few calls.
inline constexpr std::size_t kQuintetsAPart = std::size_t{1} << 16;

constexpr std::uint64_t quintets_of(std::uint64_t count) { return count / 5 + (count % 5 != 0); }

/// digit 2 where 2v >= m, 0 where 2v <= −m, else 1: round(v/m) + 1, halves away from zero. All 1 where m is 0.
void digits_by_threshold(std::span<const float> values, float m, std::uint8_t* digits);

/// Writes quintets_of(digits.size()) bytes. REQUIRES: 8 readable bytes from each group's first digit on.
void pack_quintets(std::span<const std::uint8_t> digits, std::uint8_t* bytes);

/// The values of each byte for one M.
class QuintetTable {
 public:
  explicit QuintetTable(float m);
  /// Five values for each byte, fewer for the last. REQUIRES: bytes are quintets, quintets_of(values.size()) of them.
  void expand(std::span<const std::uint8_t> bytes, std::span<float> values) const;
  /// Eight floats for each byte: the five values of a quintet and three zeros, or zeros where it is none.
  const float* eights() const { return entries_[0].values; }

 private:
  struct alignas(32) Entry {
    float values[8];  // five, and three that the next store overwrites
  };
  static constexpr std::size_t kEntries = 256;  // one for every byte
  static constexpr std::array<Entry, kEntries> entries_of_one();
  std::array<Entry, kEntries> entries_;
};

/// False where digits after the last of `count` values are not those of zero. REQUIRES: byte <= 242.
bool has_valid_padding(std::uint8_t last_byte, std::uint64_t count);

/// Expands bytes that are quintets alone. Throws bad_message where one is above 242 or the padding is not zeros.
/// REQUIRES: quintets_of(values.size()) bytes.
void decode_quintets(std::string_view coding, std::span<const std::byte> bytes, const QuintetTable& table,
                     std::span<float> values, int threads);

}  // namespace tulle
