#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/ternary.cpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep; must come before highway.h
#include "hwy/highway.h"

#include <cstdint>
#include <cstring>

HWY_BEFORE_NAMESPACE();
namespace tulle {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Doubling the value rather than halving m: it is exact for the smallest m, and what overflows is above m in any case.
void compare_all(const float* values, std::size_t count, float m, std::uint8_t* digits) {
  const hn::ScalableTag<float> floats;
  const hn::RebindToSigned<decltype(floats)> ints;
  const hn::Rebind<std::uint8_t, decltype(ints)> bytes;
  const auto above = hn::Set(floats, m), below = hn::Set(floats, -m);
  std::size_t i = 0;
  for (; i + hn::Lanes(floats) <= count; i += hn::Lanes(floats)) {
    const auto value = hn::LoadU(floats, values + i);
    const auto twice = hn::Add(value, value);
    const auto is_high = hn::BitCast(ints, hn::VecFromMask(floats, hn::Ge(twice, above)));
    const auto is_low = hn::BitCast(ints, hn::VecFromMask(floats, hn::Le(twice, below)));
    const auto digit = hn::Add(hn::Sub(hn::Set(ints, 1), is_high), is_low);
    hn::StoreU(hn::DemoteTo(bytes, digit), bytes, digits + i);
  }
  for (; i < count; ++i) {
    const float twice = values[i] + values[i];
    digits[i] = static_cast<std::uint8_t>(1 + (twice >= m) - (twice <= -m));
  }
}

// Eight values for each byte, of which the next overwrites three. A plain loop, for each target.
void expand_eights(const std::uint8_t* bytes, std::size_t count, const float* eights, float* values) {
  for (std::size_t i = 0; i < count; ++i) {
    std::memcpy(values + i * 5, eights + std::size_t{bytes[i]} * 8, 8 * sizeof(float));
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tulle
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <algorithm>

#include "base/parallel.hpp"
#include "base/simd.hpp"
#include "codec/ternary.hpp"
#include "codec/value_codings.hpp"

namespace tulle {

HWY_EXPORT(compare_all);
HWY_EXPORT(expand_eights);

void digits_by_threshold(std::span<const float> values, float m, std::uint8_t* digits) {
  if (m == 0) {
    std::fill_n(digits, values.size(), kZeroDigit);
    return;
  }
  apply_simd_environment();
  HWY_DYNAMIC_DISPATCH(compare_all)(values.data(), values.size(), m, digits);
}

namespace {

// Five digits in the low bytes of a word, weighted and added by one product: its byte 4 is the sum, and no lower byte
// reaches 256. What the word has above the five digits does not reach byte 4.
std::uint8_t quintet(std::uint64_t digits) {
  constexpr std::uint64_t kWeights = 81ull << 32 | 27ull << 24 | 9ull << 16 | 3ull << 8 | 1ull;
  return static_cast<std::uint8_t>(digits * kWeights >> 32);
}

}  // namespace

void pack_quintets(std::span<const std::uint8_t> digits, std::uint8_t* bytes) {
  std::size_t i = 0;
  for (; i + kDigitsAByte <= digits.size(); i += kDigitsAByte) {
    std::uint64_t word;
    std::memcpy(&word, digits.data() + i, sizeof word);
    *bytes++ = quintet(word);
  }
  if (i == digits.size()) return;
  std::uint64_t word = 0x0101010101;
  std::memcpy(&word, digits.data() + i, digits.size() - i);
  *bytes = quintet(word);
}

// Where M is 1.
constexpr std::array<QuintetTable::Entry, QuintetTable::kEntries> QuintetTable::entries_of_one() {
  std::array<Entry, kEntries> entries{};
  for (unsigned byte = 0; byte <= kLargestQuintet; ++byte) {
    unsigned rest = byte;
    for (int i = 4; i >= 0; --i, rest /= 3) entries[byte].values[i] = static_cast<float>(rest % 3) - 1.0f;
  }
  return entries;
}

QuintetTable::QuintetTable(float m) {
  static constexpr auto kOfOne = entries_of_one();
  for (std::size_t byte = 0; byte < kEntries; ++byte) {
    for (std::size_t i = 0; i < 8; ++i) entries_[byte].values[i] = kOfOne[byte].values[i] * m;
  }
}

void QuintetTable::expand(std::span<const std::uint8_t> bytes, std::span<float> values) const {
  apply_simd_environment();
  std::size_t i = values.size() < 8 ? 0 : (values.size() - 8) / kDigitsAByte + 1;
  HWY_DYNAMIC_DISPATCH(expand_eights)(bytes.data(), i, eights(), values.data());
  for (std::size_t at = i * kDigitsAByte; at < values.size(); ++i, at += kDigitsAByte) {
    const std::size_t length = std::min(kDigitsAByte, values.size() - at);
    std::memcpy(values.data() + at, entries_[bytes[i]].values, length * sizeof(float));
  }
}

bool has_valid_padding(std::uint8_t last_byte, std::uint64_t count) {
  constexpr unsigned kPowers[] = {1, 3, 9, 27, 81};
  const unsigned power = kPowers[quintets_of(count) * kDigitsAByte - count];
  return last_byte % power == (power - 1) / 2;
}

void decode_quintets(std::string_view coding, std::span<const std::byte> bytes, const QuintetTable& table,
                     std::span<float> values, int threads) {
  const std::span<const std::uint8_t> quintets(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
  if (!quintets.empty() && !has_valid_padding(quintets.back(), values.size())) {
    reject_values(coding, "padding is not zeros");
  }
  parallel_for(threads, buckets_of(quintets.size(), kQuintetsAPart), [&](std::size_t part) {
    const std::size_t begin = part * kQuintetsAPart, at = begin * kDigitsAByte;
    const auto mine = quintets.subspan(begin, std::min(kQuintetsAPart, quintets.size() - begin));
    const std::uint8_t largest = std::ranges::max(mine);
    if (largest > kLargestQuintet) reject_values(coding, fmt::format("{} is no byte of five values", largest));
    table.expand(mine, values.subspan(at, std::min(mine.size() * kDigitsAByte, values.size() - at)));
  });
}

}  // namespace tulle
#endif  // HWY_ONCE
