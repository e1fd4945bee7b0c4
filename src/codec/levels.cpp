#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/levels.cpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep; must come before highway.h
#include "hwy/highway.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "codec/levels.hpp"

#ifndef TULLE_LEVELS_ROUNDING
#define TULLE_LEVELS_ROUNDING
namespace tulle {

constexpr float kOne = 65536;  // in fixed point

/// A number to which f32 adds anything below 2^23 by rounding it to an integer, which then is in the lowest bits. All
/// levels in fixed point are below that.
constexpr float kRounder = 0x1p23f;

constexpr int kPhiloxRounds = 10;
constexpr std::uint32_t kPhiloxFirst = 0xD2511F53u, kPhiloxSecond = 0xCD9E8D57u;

/// value · lift · factor is the magnitude in fixed point. The lift keeps the factor finite for the smallest scales.
struct Rounding {
  float lift = 1;
  float factor = 0;
  float largest = 0;
  std::uint32_t levels = 0;
  std::array<std::uint32_t, 2> nonce{};
  std::uint64_t keys[kPhiloxRounds][2] = {};  ///< of Philox, by round; wide, so that loading one fills a vector
};

}  // namespace tulle
#endif

HWY_BEFORE_NAMESPACE();
namespace tulle {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Floats = hn::ScalableTag<float>;
using Ints = hn::RebindToSigned<Floats>;
using Words = hn::RebindToUnsigned<Floats>;

// One vector of codes, in the lowest bytes, from one of values and one of numbers to add. What kRounder and negative
// numbers leave above a code is cut off when it is stored.
template <bool kLifted>
HWY_INLINE hn::Vec<Words> codes_of(const float* values, hn::Vec<Words> added, const Rounding& rounding) {
  const Floats floats;
  const Ints ints;
  const Words words;
  const auto value = hn::LoadU(floats, values);
  auto magnitude = hn::Abs(value);
  if constexpr (kLifted) magnitude = hn::Mul(magnitude, hn::Set(floats, rounding.lift));
  const auto scaled = hn::Min(hn::Mul(magnitude, hn::Set(floats, rounding.factor)), hn::Set(floats, rounding.largest));
  const auto fixed = hn::BitCast(words, hn::Add(scaled, hn::Set(floats, kRounder)));
  const auto level = hn::ShiftRight<16>(hn::Add(fixed, added));
  const auto sign = hn::BitCast(words, hn::ShiftRight<31>(hn::BitCast(ints, value)));
  return hn::Add(hn::Set(words, rounding.levels), hn::Sub(hn::Xor(level, sign), sign));
}

#if HWY_TARGET == HWY_SCALAR
template <bool kLifted>
HWY_INLINE void round_group(const float* values, const Rounding& rounding, std::uint64_t group, std::uint8_t* codes) {
  const std::array<std::uint32_t, 2> key{static_cast<std::uint32_t>(rounding.keys[0][0]),
                                         static_cast<std::uint32_t>(rounding.keys[0][1])};
  for (unsigned block = 0; block < 8; ++block) {
    const std::uint64_t number = group * 8 + block;
    const auto words = philox({static_cast<std::uint32_t>(number), static_cast<std::uint32_t>(number >> 32),
                               rounding.nonce[0], rounding.nonce[1]},
                              key);
    for (unsigned i = 0; i < 8; ++i) {
      const unsigned word = i / 2, half = i % 2;
      const unsigned j = word / 2 * 32 + half * 16 + block * 2 + word % 2;
      const auto added = hn::Set(Words(), words[word] >> (16 * half) & 0xffff);
      codes[j] = static_cast<std::uint8_t>(hn::GetLane(codes_of<kLifted>(values + j, added, rounding)));
    }
  }
}

template <bool kLifted>
HWY_INLINE void round_group_to_nearest(const float* values, const Rounding& rounding, std::uint8_t* codes) {
  const auto half = hn::Set(Words(), 0x8000u);
  for (std::size_t j = 0; j < kRoundingGroup; ++j) {
    codes[j] = static_cast<std::uint8_t>(hn::GetLane(codes_of<kLifted>(values + j, half, rounding)));
  }
}
#else

// The lowest bytes of four vectors, stored at distances of sixteen: those of one lane are put together, then moved
// beside those of its neighbours, by fours within a block of 128 bits and by blocks among these.
HWY_INLINE void store_codes(hn::Vec<Words> a, hn::Vec<Words> b, hn::Vec<Words> c, hn::Vec<Words> d,
                            std::uint8_t* codes) {
  alignas(16) static constexpr std::uint8_t kByVector[16] = {0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15};
  static constexpr std::uint32_t kByBlock16[16] = {0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15};
  static constexpr std::uint32_t kByBlock8[8] = {0, 4, 1, 5, 2, 6, 3, 7};
  const Words words;
  const hn::Repartition<std::uint8_t, Words> bytes;
  constexpr std::size_t kLanes = hn::MaxLanes(words);
  const auto lowest = hn::Set(words, 0xffu);
  const auto ab = hn::IfVecThenElse(lowest, a, hn::ShiftLeft<8>(b));
  const auto cd = hn::IfVecThenElse(lowest, c, hn::ShiftLeft<8>(d));
  const auto abcd = hn::IfVecThenElse(hn::Set(words, 0xffffu), ab, hn::ShiftLeft<16>(cd));
  auto fours = hn::BitCast(words, hn::TableLookupBytes(hn::BitCast(bytes, abcd), hn::LoadDup128(bytes, kByVector)));
  if constexpr (kLanes == 16) {
    fours = hn::TableLookupLanes(fours, hn::SetTableIndices(words, kByBlock16));
    return hn::StoreU(hn::BitCast(bytes, fours), bytes, codes);
  }
  if constexpr (kLanes == 8) fours = hn::TableLookupLanes(fours, hn::SetTableIndices(words, kByBlock8));
  std::uint8_t ordered[4 * kLanes];
  hn::StoreU(hn::BitCast(bytes, fours), bytes, ordered);
  for (std::size_t i = 0; i < 4; ++i) std::memcpy(codes + 16 * i, ordered + kLanes * i, kLanes);
}

using Wide = hn::RepartitionToWide<Words>;

// The product of the lower halves of lanes.
HWY_INLINE hn::Vec<Wide> product(hn::Vec<Wide> counter, std::uint32_t factor) {
  const Words words;
  return hn::MulEven(hn::BitCast(words, counter), hn::Set(words, factor));
}

HWY_INLINE hn::Vec<Wide> upper(hn::Vec<Wide> product) { return hn::ShiftRight<32>(product); }

/// Blocks of Philox, one in each 64-bit lane. The upper halves of lanes hold garbage, which no product looks at.
struct Blocks {
  hn::Vec<Wide> c0, c1, c2, c3;
};

HWY_INLINE void philox_round(Blocks& blocks, const std::uint64_t (&key)[2]) {
  const Wide wide;
  const auto product0 = product(blocks.c0, kPhiloxFirst), product1 = product(blocks.c2, kPhiloxSecond);
  blocks = {hn::Xor3(upper(product1), blocks.c1, hn::Set(wide, key[0])), product1,
            hn::Xor3(upper(product0), blocks.c3, hn::Set(wide, key[1])), product0};
}

// Three rounds. The blocks of a group differ only in the lower word of their number, so that at first most of what a
// round makes is the same for all of them.
HWY_INLINE Blocks begin_philox(hn::Vec<Wide> number, std::uint32_t upper_number, const Rounding& rounding) {
  const Wide wide;
  const auto& keys = rounding.keys;
  const std::uint64_t same1 = std::uint64_t{kPhiloxSecond} * rounding.nonce[0];
  const auto same0 = static_cast<std::uint32_t>(same1 >> 32 ^ upper_number ^ keys[0][0]);
  const auto first = product(number, kPhiloxFirst);
  const auto c2 = hn::Xor(upper(first), hn::Set(wide, rounding.nonce[1] ^ keys[0][1]));

  const std::uint64_t same3 = std::uint64_t{kPhiloxFirst} * same0;
  const auto second = product(c2, kPhiloxSecond);
  const auto next_c0 = hn::Xor(upper(second), hn::Set(wide, same1 ^ keys[1][0]));
  const auto next_c2 = hn::Xor(first, hn::Set(wide, same3 >> 32 ^ keys[1][1]));

  Blocks blocks{next_c0, second, next_c2, hn::Set(wide, same3)};
  philox_round(blocks, keys[2]);
  return blocks;
}

template <bool kLifted>
HWY_INLINE void round_group(const float* values, const Rounding& rounding, std::uint64_t group, std::uint8_t* codes) {
  const Words words;
  const Wide wide;
  const std::size_t lanes = hn::Lanes(words);
  const auto low_half = hn::Set(words, 0xffffu);
  const auto upper_number = static_cast<std::uint32_t>(group * 8 >> 32);
  for (std::size_t at = 0; at < 16; at += lanes) {
    const auto number = hn::Add(hn::Set(wide, group * 8 + at / 2), hn::Iota(wide, 0));
    Blocks blocks = begin_philox(number, upper_number, rounding);
    for (int round = 3; round < kPhiloxRounds; ++round) philox_round(blocks, rounding.keys[round]);
    const auto join = [&](auto even, auto odd) HWY_ATTR {
      return hn::OddEven(hn::BitCast(words, hn::ShiftLeft<32>(odd)), hn::BitCast(words, even));
    };
    const auto first = join(blocks.c0, blocks.c1), second = join(blocks.c2, blocks.c3);
    store_codes(codes_of<kLifted>(values + at, hn::And(first, low_half), rounding),
                codes_of<kLifted>(values + 16 + at, hn::ShiftRight<16>(first), rounding),
                codes_of<kLifted>(values + 32 + at, hn::And(second, low_half), rounding),
                codes_of<kLifted>(values + 48 + at, hn::ShiftRight<16>(second), rounding), codes + at);
  }
}

template <bool kLifted>
HWY_INLINE void round_group_to_nearest(const float* values, const Rounding& rounding, std::uint8_t* codes) {
  const Words words;
  const auto half = hn::Set(words, 0x8000u);
  for (std::size_t at = 0; at < 16; at += hn::Lanes(words)) {
    store_codes(codes_of<kLifted>(values + at, half, rounding), codes_of<kLifted>(values + 16 + at, half, rounding),
                codes_of<kLifted>(values + 32 + at, half, rounding),
                codes_of<kLifted>(values + 48 + at, half, rounding), codes + at);
  }
}
#endif

// Whole groups where they lie, the last one in a copy with zeros after it.
template <class RoundGroup>
HWY_INLINE void round_groups(const float* values, std::size_t count, std::uint64_t group, std::uint8_t* codes,
                             RoundGroup&& round) {
  std::size_t i = 0;
  for (; i + kRoundingGroup <= count; i += kRoundingGroup) round(values + i, group++, codes + i);
  if (i == count) return;
  float rest[kRoundingGroup] = {};
  std::uint8_t rest_codes[kRoundingGroup];
  std::memcpy(rest, values + i, (count - i) * sizeof(float));
  round(rest, group, rest_codes);
  std::memcpy(codes + i, rest_codes, count - i);
}

template <bool kLifted>
HWY_INLINE void round_groups_stochastically(const float* values, std::size_t count, const Rounding& rounding,
                                            std::uint64_t group, std::uint8_t* codes) {
  round_groups(values, count, group, codes, [&](const float* from, std::uint64_t number, std::uint8_t* to) HWY_ATTR {
    round_group<kLifted>(from, rounding, number, to);
  });
}

void round_stochastically(const float* values, std::size_t count, const Rounding& rounding, std::uint64_t group,
                          std::uint8_t* codes) {
  if (rounding.lift == 1) return round_groups_stochastically<false>(values, count, rounding, group, codes);
  round_groups_stochastically<true>(values, count, rounding, group, codes);
}

template <bool kLifted>
HWY_INLINE void round_groups_to_nearest(const float* values, std::size_t count, const Rounding& rounding,
                                        std::uint8_t* codes) {
  round_groups(values, count, 0, codes, [&](const float* from, std::uint64_t, std::uint8_t* to) HWY_ATTR {
    round_group_to_nearest<kLifted>(from, rounding, to);
  });
}

void round_to_nearest(const float* values, std::size_t count, const Rounding& rounding, std::uint64_t,
                      std::uint8_t* codes) {
  if (rounding.lift == 1) return round_groups_to_nearest<false>(values, count, rounding, codes);
  round_groups_to_nearest<true>(values, count, rounding, codes);
}

unsigned multiply_levels(const std::uint8_t* codes, std::size_t count, float scale, int levels, float* values) {
  const Floats floats;
  const Ints ints;
  const hn::Rebind<std::uint8_t, Ints> bytes;
  const float step = 1.0f / static_cast<float>(levels);
  auto largest = hn::Zero(ints);
  std::size_t i = 0;
  for (; i + hn::Lanes(ints) <= count; i += hn::Lanes(ints)) {
    const auto code = hn::PromoteTo(ints, hn::LoadU(bytes, codes + i));
    largest = hn::Max(largest, code);
    const auto level = hn::ConvertTo(floats, hn::Sub(code, hn::Set(ints, levels)));
    hn::StoreU(hn::Mul(hn::Mul(level, hn::Set(floats, step)), hn::Set(floats, scale)), floats, values + i);
  }
  auto found = static_cast<unsigned>(hn::GetLane(hn::MaxOfLanes(ints, largest)));
  for (; i < count; ++i) {
    found = std::max<unsigned>(found, codes[i]);
    values[i] = static_cast<float>(codes[i] - levels) * step * scale;
  }
  return found;
}

// Plain loops: the compiler makes vectors of them for each target. They do whole bytes.
template <int kBits>
HWY_INLINE void pack_bytes(const std::uint8_t* HWY_RESTRICT codes, std::size_t bytes, std::uint8_t* HWY_RESTRICT out) {
  constexpr int kCodes = 8 / kBits;
  for (std::size_t i = 0; i < bytes; ++i) {
    unsigned byte = 0;
    for (int j = 0; j < kCodes; ++j) byte |= static_cast<unsigned>(codes[kCodes * i + j]) << (kBits * j);
    out[i] = static_cast<std::uint8_t>(byte);
  }
}

template <int kBits>
HWY_INLINE void unpack_bytes(const std::uint8_t* HWY_RESTRICT in, std::size_t bytes, std::uint8_t* HWY_RESTRICT codes) {
  constexpr int kCodes = 8 / kBits;
  for (std::size_t i = 0; i < bytes; ++i) {
    for (int j = 0; j < kCodes; ++j) codes[kCodes * i + j] = in[i] >> (kBits * j) & ((1 << kBits) - 1);
  }
}

void pack_whole(const std::uint8_t* codes, std::size_t bytes, int bits, std::uint8_t* out) {
  if (bits == 1) return pack_bytes<1>(codes, bytes, out);
  if (bits == 2) return pack_bytes<2>(codes, bytes, out);
  if (bits == 4) return pack_bytes<4>(codes, bytes, out);
  std::memcpy(out, codes, bytes);
}

void unpack_whole(const std::uint8_t* in, std::size_t bytes, int bits, std::uint8_t* codes) {
  if (bits == 1) return unpack_bytes<1>(in, bytes, codes);
  if (bits == 2) return unpack_bytes<2>(in, bytes, codes);
  if (bits == 4) return unpack_bytes<4>(in, bytes, codes);
  std::memcpy(codes, in, bytes);
}

}  // namespace HWY_NAMESPACE
}  // namespace tulle
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "base/simd.hpp"

namespace tulle {
namespace {

HWY_EXPORT(round_stochastically);
HWY_EXPORT(round_to_nearest);
HWY_EXPORT(multiply_levels);
HWY_EXPORT(pack_whole);
HWY_EXPORT(unpack_whole);

Rounding rounding_of(float scale, unsigned levels, const RoundingStream* stream) {
  const float lift = scale < 0x1p-64f ? 0x1p64f : 1.0f;
  const float largest = static_cast<float>(levels) * kOne;
  Rounding rounding{
      .lift = lift, .factor = scale == 0 ? 0.0f : largest / (scale * lift), .largest = largest, .levels = levels};
  if (stream == nullptr) return rounding;
  rounding.nonce = stream->nonce;
  auto [key0, key1] = stream->key;
  for (auto& key : rounding.keys) {
    key[0] = key0, key[1] = key1;
    key0 += 0x9E3779B9u, key1 += 0xBB67AE85u;
  }
  return rounding;
}

}  // namespace

void quantize(std::span<const float> values, float scale, unsigned levels, const RoundingStream* stream,
              std::uint64_t first_group, std::uint8_t* codes) {
  apply_simd_environment();
  const Rounding rounding = rounding_of(scale, levels, stream);
  const auto kernel =
      stream == nullptr ? HWY_DYNAMIC_DISPATCH(round_to_nearest) : HWY_DYNAMIC_DISPATCH(round_stochastically);
  kernel(values.data(), values.size(), rounding, first_group, codes);
}

unsigned dequantize(std::span<const std::uint8_t> codes, float scale, unsigned levels, float* values) {
  apply_simd_environment();
  return HWY_DYNAMIC_DISPATCH(multiply_levels)(codes.data(), codes.size(), scale, static_cast<int>(levels), values);
}

void pack_codes(std::span<const std::uint8_t> codes, int bits, std::byte* bytes) {
  if (codes.empty()) return;
  apply_simd_environment();
  const std::size_t whole = codes.size() * static_cast<std::size_t>(bits) / 8;
  const std::size_t packed = whole * 8 / static_cast<std::size_t>(bits);
  HWY_DYNAMIC_DISPATCH(pack_whole)(codes.data(), whole, bits, reinterpret_cast<std::uint8_t*>(bytes));
  if (packed == codes.size()) return;
  unsigned last = 0;
  for (std::size_t i = packed; i < codes.size(); ++i)
    last |= codes[i] << ((i - packed) * static_cast<std::size_t>(bits));
  bytes[whole] = static_cast<std::byte>(last);
}

void unpack_codes(const std::byte* bytes, int bits, std::span<std::uint8_t> codes) {
  if (codes.empty()) return;
  apply_simd_environment();
  const std::size_t whole = codes.size() * static_cast<std::size_t>(bits) / 8;
  const std::size_t packed = whole * 8 / static_cast<std::size_t>(bits);
  HWY_DYNAMIC_DISPATCH(unpack_whole)(reinterpret_cast<const std::uint8_t*>(bytes), whole, bits, codes.data());
  for (std::size_t i = packed; i < codes.size(); ++i) {
    const unsigned last = std::to_integer<unsigned>(bytes[whole]);
    codes[i] = static_cast<std::uint8_t>(last >> ((i - packed) * static_cast<std::size_t>(bits)) & ((1u << bits) - 1));
  }
}

}  // namespace tulle
#endif  // HWY_ONCE
