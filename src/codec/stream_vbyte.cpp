#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/stream_vbyte.cpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep; must come before highway.h
#include "hwy/highway.h"

#include <array>
#include <bit>
#include <cstring>

#include "codec/stream_vbyte.hpp"

#ifndef TULLE_STREAM_VBYTE_TABLES
#define TULLE_STREAM_VBYTE_TABLES
namespace tulle {

struct alignas(16) Shuffle {
  std::uint8_t from[16];
};

// For each control byte: the bytes that its numbers take, and the shuffles that spread and gather them. An index of
// 0x80 gives a zero byte.
struct ShuffleTables {
  std::array<std::uint8_t, 256> bytes{};
  std::array<Shuffle, 256> spread{};
  std::array<Shuffle, 256> gather{};
};

constexpr ShuffleTables make_shuffle_tables() {
  ShuffleTables tables;
  for (unsigned control = 0; control < 256; ++control) {
    for (auto& from : tables.spread[control].from) from = 0x80;
    for (auto& from : tables.gather[control].from) from = 0x80;
    std::uint8_t packed = 0;
    for (unsigned number = 0; number < 4; ++number) {
      for (unsigned byte = 0; byte <= (control >> (2 * number) & 3); ++byte, ++packed) {
        tables.spread[control].from[4 * number + byte] = packed;
        tables.gather[control].from[packed] = static_cast<std::uint8_t>(4 * number + byte);
      }
    }
    tables.bytes[control] = packed;
  }
  return tables;
}

inline constexpr ShuffleTables kShuffleTables = make_shuffle_tables();

/// How many groups of four numbers a kernel did, and their bytes of data.
struct Fours {
  std::size_t count = 0;
  std::size_t data_bytes = 0;
};

constexpr unsigned code_of(std::uint32_t value) { return (31u - std::countl_zero(value | 1u)) / 8; }

}  // namespace tulle
#endif

HWY_BEFORE_NAMESPACE();
namespace tulle {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Bytes beyond the first of each value. A plain loop: the compiler makes vectors of it for each target.
std::size_t count_more_bytes(const std::uint32_t* values, std::size_t count) {
  std::uint32_t bytes = 0;
  for (std::size_t i = 0; i < count; ++i) bytes += (values[i] > 0xFF) + (values[i] > 0xFFFF) + (values[i] > 0xFFFFFF);
  return bytes;
}

#if HWY_TARGET == HWY_SCALAR
Fours encode_fours(const std::uint32_t*, std::size_t, std::uint8_t*, std::uint8_t*) { return {}; }
Fours decode_fours(const std::uint8_t*, std::size_t, const std::uint8_t*, std::size_t, std::uint32_t*) { return {}; }
#else

Fours encode_fours(const std::uint32_t* values, std::size_t count, std::uint8_t* control, std::uint8_t* data) {
  const hn::FixedTag<std::uint8_t, 16> tag;
  std::size_t at = 0;
  for (std::size_t i = 0; i < count; ++i, values += 4) {
    const unsigned code =
        code_of(values[0]) | code_of(values[1]) << 2 | code_of(values[2]) << 4 | code_of(values[3]) << 6;
    control[i] = static_cast<std::uint8_t>(code);
    const auto numbers = hn::LoadU(tag, reinterpret_cast<const std::uint8_t*>(values));
    const auto gather = hn::Load(tag, kShuffleTables.gather[code].from);
    hn::StoreU(hn::TableLookupBytesOr0(numbers, gather), tag, data + at);
    at += kShuffleTables.bytes[code];
  }
  return {count, at};
}

// Stops where 16 bytes can no longer be read.
Fours decode_fours(const std::uint8_t* control, std::size_t count, const std::uint8_t* data, std::size_t readable,
                   std::uint32_t* values) {
  const hn::FixedTag<std::uint8_t, 16> tag;
  Fours done;
  for (; done.count < count && done.data_bytes + 16 <= readable; ++done.count, values += 4) {
    const unsigned code = control[done.count];
    const auto spread = hn::Load(tag, kShuffleTables.spread[code].from);
    const auto numbers = hn::TableLookupBytesOr0(hn::LoadU(tag, data + done.data_bytes), spread);
    hn::StoreU(numbers, tag, reinterpret_cast<std::uint8_t*>(values));
    done.data_bytes += kShuffleTables.bytes[code];
  }
  return done;
}
#endif

}  // namespace HWY_NAMESPACE
}  // namespace tulle
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "base/simd.hpp"

namespace tulle {
namespace {

HWY_EXPORT(count_more_bytes);
HWY_EXPORT(encode_fours);
HWY_EXPORT(decode_fours);

const std::uint8_t* octets(std::span<const std::byte> bytes) {
  return reinterpret_cast<const std::uint8_t*>(bytes.data());
}

}  // namespace

std::size_t stream_vbyte_bytes(std::span<const std::uint32_t> values) {
  apply_simd_environment();
  return stream_vbyte_control_bytes(values.size()) + values.size() +
         HWY_DYNAMIC_DISPATCH(count_more_bytes)(values.data(), values.size());
}

std::byte* stream_vbyte_encode(std::span<const std::uint32_t> values, std::byte* out) {
  apply_simd_environment();
  auto* const control = reinterpret_cast<std::uint8_t*>(out);
  std::uint8_t* data = control + stream_vbyte_control_bytes(values.size());
  const Fours done = HWY_DYNAMIC_DISPATCH(encode_fours)(values.data(), values.size() / 4, control, data);
  data += done.data_bytes;
  for (std::size_t i = done.count * 4; i < values.size(); ++i) {
    const unsigned code = code_of(values[i]);
    control[i / 4] = static_cast<std::uint8_t>((i % 4 == 0 ? 0 : control[i / 4]) | code << (i % 4 * 2));
    std::memcpy(data, &values[i], code + 1);
    data += code + 1;
  }
  return reinterpret_cast<std::byte*>(data);
}

std::size_t stream_vbyte_data_bytes(std::span<const std::byte> control, std::size_t count) {
  std::size_t bytes = 0;
  for (const std::byte codes : control) bytes += kShuffleTables.bytes[std::to_integer<unsigned>(codes)];
  return bytes - (control.size() * 4 - count);  // numbers that are not there would take a byte each
}

void stream_vbyte_decode(std::span<const std::byte> control, std::span<const std::byte> data,
                         std::span<std::uint32_t> values) {
  apply_simd_environment();
  const Fours done =
      HWY_DYNAMIC_DISPATCH(decode_fours)(octets(control), values.size() / 4, octets(data), data.size(), values.data());
  data = data.subspan(done.data_bytes);
  for (std::size_t i = done.count * 4; i < values.size(); ++i) {
    const std::size_t bytes = (std::to_integer<unsigned>(control[i / 4]) >> (i % 4 * 2) & 3) + 1;
    values[i] = 0;
    std::memcpy(&values[i], data.data(), bytes);
    data = data.subspan(bytes);
  }
}

}  // namespace tulle
#endif  // HWY_ONCE
