// f32, f16 and bf16: each value rounded to the nearest of that type, ties to even. NaN and infinity travel; what is
// finite and too large for f16 or bf16 becomes its largest value, 65504 or 3.39e38, so that no sum is infinite which
// was not before. No parameters, 4 or 2 bytes a value.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "codec/narrow.hpp"
#include "codec/value_codings.hpp"
#include "stream/half_arrays.hpp"

namespace tulle {

std::uint64_t f32_bytes(const ValueCodec&, std::uint64_t count) { return count * 4; }
std::uint64_t f16_bytes(const ValueCodec&, std::uint64_t count) { return count * 2; }
std::uint64_t bf16_bytes(const ValueCodec&, std::uint64_t count) { return count * 2; }

Buffer encode_f32(const ValueCodec&, std::span<const float> values, const RoundingKey&) {
  return Buffer::copy_of(std::as_bytes(values));
}

void narrow(const float* values, Half* halves, std::size_t count) {
  constexpr float kLargest = 65504;
  if (narrow_to_halves(values, halves, count) == 0) return;
  for (std::size_t i = 0; i < count; ++i) {
    if (std::isfinite(values[i])) halves[i] = Half(std::clamp(values[i], -kLargest, kLargest));
  }
}

// The largest value has the bits before those of infinity, which only rounding up can lead to.
void narrow(const float* values, Bfloat16* narrow, std::size_t count) {
  constexpr std::uint32_t kMagnitude = 0x7fffffff, kInfinity = 0x7f800000;
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint16_t bits = Bfloat16(values[i]).bits;
    const bool was_finite = (std::bit_cast<std::uint32_t>(values[i]) & kMagnitude) < kInfinity;
    const bool is_infinite = (bits & kMagnitude >> 16) == kInfinity >> 16;
    narrow[i].bits = static_cast<std::uint16_t>(bits - (was_finite && is_infinite ? 1 : 0));
  }
}

Buffer encode_f16(const ValueCodec&, std::span<const float> values, const RoundingKey&) {
  Buffer buffer = Buffer::allocate(values.size() * sizeof(Half));
  narrow(values.data(), buffer.as_mutable<Half>().data(), values.size());
  return buffer;
}

Buffer recode_f16(const ValueCodec&, std::span<const float> values, const RoundingKey&, float* decoded) {
  Buffer buffer = Buffer::allocate(values.size() * sizeof(Half));
  Half* const halves = buffer.as_mutable<Half>().data();
  const ArrayWriter writer = writer_of_decoded(values, decoded);
  for (std::size_t i = 0; i < values.size(); i += kDecodedTile) {
    const std::size_t count = std::min(kDecodedTile, values.size() - i);
    narrow(&values[i], halves + i, count);
    write_decoded(writer, decoded + i, count, [&](float* to) { widen_halves(halves + i, to, count); });
  }
  return buffer;
}

Buffer encode_bf16(const ValueCodec&, std::span<const float> values, const RoundingKey&) {
  Buffer buffer = Buffer::allocate(values.size() * sizeof(Bfloat16));
  narrow(values.data(), buffer.as_mutable<Bfloat16>().data(), values.size());
  return buffer;
}

void decode_f32(std::span<const std::byte> bytes, std::span<float> values, int) {
  expect_bytes("f32", bytes, values.size_bytes());
  if (!bytes.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
}

void decode_f16(std::span<const std::byte> bytes, std::span<float> values, int) {
  expect_bytes("f16", bytes, values.size() * sizeof(Half));
  widen_halves(reinterpret_cast<const Half*>(bytes.data()), values.data(), values.size());
}

void decode_bf16(std::span<const std::byte> bytes, std::span<float> values, int) {
  expect_bytes("bf16", bytes, values.size() * sizeof(Bfloat16));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(load_at<Bfloat16>(bytes, i * 2));
}

}  // namespace tulle
