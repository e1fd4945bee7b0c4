#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/levels.cpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep; must come before highway.h
#include "hwy/highway.h"

#include <algorithm>
#include <cstring>

#include "codec/levels.hpp"

#ifndef TULLE_LEVELS_ROUNDING
#define TULLE_LEVELS_ROUNDING
namespace tulle {

constexpr float kOne = 65536;  // in fixed point

/// value · lift · factor is the magnitude in fixed point. The lift keeps the factor finite for the smallest scales.
struct Rounding {
  float lift = 1;
  float factor = 0;
  std::int32_t largest = 0;
  std::int32_t levels = 0;
  RoundingStream stream;
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

// One vector of codes from one of values and one of numbers to add.
HWY_INLINE void round_vector(const float* values, hn::Vec<Ints> added, const Rounding& rounding, std::uint8_t* codes) {
  const Floats floats;
  const Ints ints;
  const auto value = hn::LoadU(floats, values);
  const auto scaled =
      hn::Mul(hn::Mul(hn::Abs(value), hn::Set(floats, rounding.lift)), hn::Set(floats, rounding.factor));
  const auto fixed = hn::Min(hn::NearestInt(scaled), hn::Set(ints, rounding.largest));
  const auto level = hn::ShiftRight<16>(hn::Add(fixed, added));
  const auto sign = hn::ShiftRight<31>(hn::BitCast(ints, value));
  const auto code = hn::Add(hn::Set(ints, rounding.levels), hn::Sub(hn::Xor(level, sign), sign));
  const hn::Rebind<std::uint8_t, Ints> bytes;
  hn::StoreU(hn::DemoteTo(bytes, code), bytes, codes);
}

#if HWY_TARGET == HWY_SCALAR
HWY_INLINE void round_group(const float* values, const Rounding& rounding, std::uint64_t group, std::uint8_t* codes) {
  const auto& [key, nonce] = rounding.stream;
  for (unsigned block = 0; block < 8; ++block) {
    const std::uint64_t number = group * 8 + block;
    const auto words =
        philox({static_cast<std::uint32_t>(number), static_cast<std::uint32_t>(number >> 32), nonce[0], nonce[1]}, key);
    for (unsigned i = 0; i < 8; ++i) {
      const unsigned word = i / 2, half = i % 2;
      const unsigned j = word / 2 * 32 + half * 16 + block * 2 + word % 2;
      const auto added = static_cast<std::int32_t>(words[word] >> (16 * half) & 0xffff);
      round_vector(values + j, hn::Set(Ints(), added), rounding, codes + j);
    }
  }
}
#else

// Blocks of Philox, one in each 64-bit lane. The upper halves of lanes hold garbage: MulEven does not look at them.
HWY_INLINE void philox_round(hn::Vec<Words>& c0, hn::Vec<Words>& c1, hn::Vec<Words>& c2, hn::Vec<Words>& c3,
                             std::uint32_t key0, std::uint32_t key1) {
  const Words words;
  const auto product0 = hn::MulEven(c0, hn::Set(words, 0xD2511F53u));
  const auto product1 = hn::MulEven(c2, hn::Set(words, 0xCD9E8D57u));
  c0 = hn::Xor3(hn::BitCast(words, hn::ShiftRight<32>(product1)), c1, hn::Set(words, key0));
  c1 = hn::BitCast(words, product1);
  c2 = hn::Xor3(hn::BitCast(words, hn::ShiftRight<32>(product0)), c3, hn::Set(words, key1));
  c3 = hn::BitCast(words, product0);
}

HWY_INLINE void round_group(const float* values, const Rounding& rounding, std::uint64_t group, std::uint8_t* codes) {
  const Words words;
  const hn::RepartitionToWide<Words> wide;
  const std::size_t lanes = hn::Lanes(words);
  const auto low_half = hn::Set(words, 0xffffu);
  for (std::size_t at = 0; at < 16; at += lanes) {
    const auto number = hn::Add(hn::Set(wide, group * 8 + at / 2), hn::Iota(wide, 0));
    auto c0 = hn::BitCast(words, number), c1 = hn::BitCast(words, hn::ShiftRight<32>(number));
    auto c2 = hn::Set(words, rounding.stream.nonce[0]), c3 = hn::Set(words, rounding.stream.nonce[1]);
    auto [key0, key1] = rounding.stream.key;
    for (int round = 0; round < 10; ++round, key0 += 0x9E3779B9u, key1 += 0xBB67AE85u) {
      philox_round(c0, c1, c2, c3, key0, key1);
    }
    const auto join = [&](auto even, auto odd) HWY_ATTR {
      return hn::OddEven(hn::BitCast(words, hn::ShiftLeft<32>(hn::BitCast(wide, odd))), even);
    };
    const auto first = join(c0, c1), second = join(c2, c3);
    const Ints ints;
    const auto low = [&](auto drawn) HWY_ATTR { return hn::BitCast(ints, hn::And(drawn, low_half)); };
    const auto high = [&](auto drawn) HWY_ATTR { return hn::BitCast(ints, hn::ShiftRight<16>(drawn)); };
    round_vector(values + at, low(first), rounding, codes + at);
    round_vector(values + 16 + at, high(first), rounding, codes + 16 + at);
    round_vector(values + 32 + at, low(second), rounding, codes + 32 + at);
    round_vector(values + 48 + at, high(second), rounding, codes + 48 + at);
  }
}
#endif

HWY_INLINE void round_group_to_nearest(const float* values, const Rounding& rounding, std::uint64_t,
                                       std::uint8_t* codes) {
  const Ints ints;
  for (std::size_t at = 0; at < kRoundingGroup; at += hn::Lanes(ints)) {
    round_vector(values + at, hn::Set(ints, 0x8000), rounding, codes + at);
  }
}

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

void round_stochastically(const float* values, std::size_t count, const Rounding& rounding, std::uint64_t group,
                          std::uint8_t* codes) {
  round_groups(values, count, group, codes, [&](const float* from, std::uint64_t number, std::uint8_t* to) HWY_ATTR {
    round_group(from, rounding, number, to);
  });
}

void round_to_nearest(const float* values, std::size_t count, const Rounding& rounding, std::uint64_t group,
                      std::uint8_t* codes) {
  round_groups(values, count, group, codes, [&](const float* from, std::uint64_t number, std::uint8_t* to) HWY_ATTR {
    round_group_to_nearest(from, rounding, number, to);
  });
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
  return {.lift = lift,
          .factor = scale == 0 ? 0.0f : largest / (scale * lift),
          .largest = static_cast<std::int32_t>(largest),
          .levels = static_cast<std::int32_t>(levels),
          .stream = stream == nullptr ? RoundingStream{} : *stream};
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
