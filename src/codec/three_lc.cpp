// three_lc: −M, 0 or M by rounding, five to a byte, runs of zeros in one. Biased; made for error feedback.
//
// How it works. M = max|v|·s, where the *sparsity multiplier* 1 <= s < 2 makes more zeros. A value becomes round(v/M),
// halves away from zero: ±1 from M/2 on. Five make a byte (ternary.hpp). *Zero-run encoding* then replaces 2 to 14
// bytes of five zeros each (121) by one byte, 243 to 255; a longer run is split, as many 14s as fit first.
//
// Several threads make the bytes of their parts and then the runs. The second cut is moved on to the next byte that is
// not 121, so that no run is cut and the bytes are those of one thread. Decoding, they count the values of their parts
// before they write them.
//
// Bytes: 8 for M and whether there are runs; then 1.6 bits a value without runs, down to 0.023 where all is zero.
// 3LC (Lim, Andersen, Kaminsky, 2019), section 3; where it is silent: M is at most the largest f32, the last group is
// filled up with zeros.
#include <algorithm>
#include <cmath>

#include "base/parallel.hpp"
#include "codec/float_kernels.hpp"
#include "codec/levels.hpp"
#include "codec/ternary.hpp"
#include "codec/value_codings.hpp"
#include "codec/zero_runs.hpp"

namespace tulle {
namespace {

constexpr std::size_t kScaleAt = 0, kZeroRunsAt = 4, kReservedAt = 5, kFrontBytes = 8;
constexpr std::size_t kTileBytes = 2048;                  // quintets that stay in the cache between steps
constexpr std::size_t kTile = kTileBytes * kDigitsAByte;  // their values

float multiplied_maximum(std::span<const float> values, double sparsity) {
  const float largest = scale_of(ScaleNorm::max, values);
  if (!std::isfinite(largest)) throw_not_finite("three_lc", values);
  return static_cast<float>(std::min<double>(largest * sparsity, std::numeric_limits<float>::max()));
}

/// What is coded, and where what is decoded again goes; null: nowhere. That may be where the values are.
struct Source {
  std::span<const float> values;
  float m;
  float* decoded;

  Source part(std::size_t first, std::size_t most) const {
    const std::size_t count = std::min(most, values.size() - first);
    return {values.subspan(first, count), m, decoded == nullptr ? nullptr : decoded + first};
  }
};

// Digits are levels of M, one to each side.
void decode_digits(const Source& tile, const std::uint8_t* digits, const ArrayWriter& writer) {
  for (std::size_t i = 0; i < tile.values.size(); i += kDecodedTile) {
    const std::size_t count = std::min(kDecodedTile, tile.values.size() - i);
    write_decoded(writer, tile.decoded + i, count, [&](float* to) { dequantize({digits + i, count}, tile.m, 1, to); });
  }
}

// The quintets of one tile.
std::span<const std::uint8_t> encode_tile(const Source& tile, std::uint8_t* quintets, const ArrayWriter& writer) {
  std::uint8_t digits[kTile + 8];
  digits_by_threshold(tile.values, tile.m, digits);
  pack_quintets({digits, tile.values.size()}, quintets);
  if (tile.decoded != nullptr) decode_digits(tile, digits, writer);
  return {quintets, quintets_of(tile.values.size())};
}

// Calls function(tile, place of its first quintet).
template <class Function>
void for_each_tile(const Source& source, Function&& function) {
  for (std::size_t at = 0; at < source.values.size(); at += kTile) function(source.part(at, kTile), at / kDigitsAByte);
}

// Both return the end of what they wrote.
std::uint8_t* encode_serially(const Source& source, const ArrayWriter& decoded, std::uint8_t* out) {
  ZeroRunWriter writer(out);
  std::uint8_t quintets[kTileBytes];
  for_each_tile(source, [&](const Source& tile, std::size_t) { writer.put(encode_tile(tile, quintets, decoded)); });
  return writer.finish();
}

void encode_quintets(const Source& source, int threads, std::uint8_t* out) {
  constexpr std::size_t kPart = kQuintetsAPart * kDigitsAByte;
  parallel_for(threads, buckets_of(source.values.size(), kPart), [&](std::size_t part) {
    const ArrayWriter decoded = writer_of_decoded(source.values, source.decoded);
    for_each_tile(source.part(part * kPart, kPart), [&](const Source& tile, std::size_t at) {
      encode_tile(tile, out + part * kQuintetsAPart + at, decoded);
    });
  });
}

std::uint8_t* encode_in_parallel(const Source& source, int threads, std::uint8_t* out) {
  PoolVector<std::uint8_t> quintets(quintets_of(source.values.size()));
  encode_quintets(source, threads, quintets.data());
  return write_zero_runs(quintets, kQuintetsAPart, threads, out);
}

}  // namespace

std::uint64_t three_lc_bytes(const ValueCodec&, std::uint64_t count) { return kFrontBytes + quintets_of(count); }

Buffer encode_three_lc(const ValueCodec& codec, std::span<const float> values, const RoundingKey& key) {
  return recode_three_lc(codec, values, key, nullptr);
}

Buffer recode_three_lc(const ValueCodec& codec, std::span<const float> values, const RoundingKey&, float* decoded) {
  const float m = multiplied_maximum(values, codec.sparsity);
  Buffer buffer = Buffer::allocate(three_lc_bytes(codec, values.size()));
  const auto bytes = buffer.as_mutable<std::byte>();
  std::fill_n(bytes.begin(), kFrontBytes, std::byte{0});
  store_at(bytes, kScaleAt, m);
  store_at(bytes, kZeroRunsAt, codec.zero_runs);
  auto* const out = reinterpret_cast<std::uint8_t*>(bytes.data() + kFrontBytes);
  const Source source{values, m, decoded};
  if (!codec.zero_runs) return encode_quintets(source, codec.threads, out), buffer;
  const std::uint8_t* const end = codec.threads == 1 ? encode_serially(source, writer_of_decoded(values, decoded), out)
                                                     : encode_in_parallel(source, codec.threads, out);
  return buffer.slice(0, kFrontBytes + static_cast<std::size_t>(end - out));
}

void decode_three_lc(std::span<const std::byte> bytes, std::span<float> values, int threads) {
  if (bytes.size() < kFrontBytes) reject_values("three_lc", "the message ends before its parameters do");
  const auto zero_runs = load_at<std::uint8_t>(bytes, kZeroRunsAt);
  if (zero_runs > 1 || load_at<std::uint16_t>(bytes, kReservedAt) != 0 || bytes[kReservedAt + 2] != std::byte{0}) {
    reject_values("three_lc", "zero_runs is neither 0 nor 1, or reserved bytes are not zero");
  }
  const QuintetTable table(load_scale("three_lc", bytes, kScaleAt));
  const auto body = bytes.subspan(kFrontBytes);
  if (zero_runs == 1) return read_zero_runs(body, table, values, threads);
  expect_bytes("three_lc", body, quintets_of(values.size()));
  decode_quintets("three_lc", body, table, values, threads);
}

}  // namespace tulle
