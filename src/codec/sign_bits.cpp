#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/sign_bits.cpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep; must come before highway.h
#include "hwy/highway.h"

#include <bit>
#include <cstdint>
#include <cstring>

HWY_BEFORE_NAMESPACE();
namespace tulle {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Floats = hn::ScalableTag<float>;

constexpr std::size_t kWord = 64;  // values whose bits make a word

// Masks go through memory because that is all that vectors of every width have in common.
HWY_INLINE std::uint64_t word_of_negatives(const float* values) {
  const Floats floats;
  std::uint64_t word = 0;
  for (std::size_t at = 0; at < kWord; at += hn::Lanes(floats)) {
    std::uint8_t bits[8] = {};
    hn::StoreMaskBits(floats, hn::Lt(hn::LoadU(floats, values + at), hn::Zero(floats)), bits);
    std::uint64_t part;
    std::memcpy(&part, bits, sizeof part);
    word |= part << at;
  }
  return word;
}

HWY_INLINE void select_by_word(std::uint64_t word, float if_clear, float if_set, float* values) {
  const Floats floats;
  for (std::size_t at = 0; at < kWord; at += hn::Lanes(floats)) {
    const std::uint64_t part = word >> at;
    std::uint8_t bits[8];
    std::memcpy(bits, &part, sizeof bits);
    const auto is_set = hn::LoadMaskBits(floats, bits);
    hn::StoreU(hn::IfThenElse(is_set, hn::Set(floats, if_set), hn::Set(floats, if_clear)), floats, values + at);
  }
}

std::size_t pack_all(const float* values, std::size_t count, std::uint8_t* bits) {
  std::size_t negatives = 0, i = 0;
  const auto put = [&](const float* from, std::size_t bytes) HWY_ATTR {
    const std::uint64_t word = word_of_negatives(from);
    negatives += static_cast<std::size_t>(std::popcount(word));
    std::memcpy(bits + i / 8, &word, bytes);
  };
  for (; i + kWord <= count; i += kWord) put(values + i, kWord / 8);
  if (i == count) return negatives;
  float rest[kWord] = {};
  std::memcpy(rest, values + i, (count - i) * sizeof(float));
  put(rest, (count - i + 7) / 8);
  return negatives;
}

void select_all(const std::uint8_t* bits, float if_clear, float if_set, float* values, std::size_t count) {
  std::size_t i = 0;
  std::uint64_t word = 0;
  for (; i + kWord <= count; i += kWord) {
    std::memcpy(&word, bits + i / 8, sizeof word);
    select_by_word(word, if_clear, if_set, values + i);
  }
  if (i == count) return;
  std::memcpy(&word, bits + i / 8, (count - i + 7) / 8);
  float rest[kWord];
  select_by_word(word, if_clear, if_set, rest);
  std::memcpy(values + i, rest, (count - i) * sizeof(float));
}

}  // namespace HWY_NAMESPACE
}  // namespace tulle
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "base/simd.hpp"
#include "codec/sign_bits.hpp"

namespace tulle {

HWY_EXPORT(pack_all);
HWY_EXPORT(select_all);

std::size_t pack_negatives(std::span<const float> values, std::byte* bits) {
  apply_simd_environment();
  return HWY_DYNAMIC_DISPATCH(pack_all)(values.data(), values.size(), reinterpret_cast<std::uint8_t*>(bits));
}

void select_by_bits(const std::byte* bits, float if_clear, float if_set, std::span<float> values) {
  apply_simd_environment();
  HWY_DYNAMIC_DISPATCH(select_all)
  (reinterpret_cast<const std::uint8_t*>(bits), if_clear, if_set, values.data(), values.size());
}

}  // namespace tulle
#endif  // HWY_ONCE
