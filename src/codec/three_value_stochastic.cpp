// three_value_stochastic: −M, 0 or M at random, five to a byte. Unbiased.
//
// How it works. M is the largest magnitude of all values. A value becomes ±M with probability |v|/M, else 0: qsgd's
// rounding with one level. The three values are digits 0, 1, 2, packed by five (ternary.hpp). For error feedback the
// mean magnitude of what became ±M is sent instead of M (recode.hpp).
//
// Bytes: 4 for M and a fifth of a byte for each value, 1.6 bits. TernGrad (Wen et al., 2017) with 3LC's packing, as in
// 3LC's Table 1.
#include <cmath>

#include "base/parallel.hpp"
#include "codec/float_kernels.hpp"
#include "codec/levels.hpp"
#include "codec/ternary.hpp"
#include "codec/value_codings.hpp"

namespace tulle {
namespace {

constexpr std::size_t kFrontBytes = 4;
constexpr std::size_t kTile = 12 * kRoundingGroup * kDigitsAByte;  // whole groups and whole bytes
static_assert(kTile % kRoundingGroup == 0 && kTile % kDigitsAByte == 0 && kTile <= kDecodedTile);

std::uint8_t* octets(std::byte* bytes) { return reinterpret_cast<std::uint8_t*>(bytes); }

}  // namespace

std::uint64_t three_value_stochastic_bytes(const ValueCodec&, std::uint64_t count) {
  return kFrontBytes + quintets_of(count);
}

Buffer encode_three_value_stochastic(const ValueCodec& codec, std::span<const float> values, const RoundingKey& key) {
  return recode_three_value_stochastic(codec, values, key, nullptr);
}

Buffer recode_three_value_stochastic(const ValueCodec& codec, std::span<const float> values, const RoundingKey& key,
                                     float* decoded) {
  const float scale = scale_of(ScaleNorm::max, values);
  if (!std::isfinite(scale)) throw_not_finite("three_value_stochastic", values);
  Buffer buffer = Buffer::allocate(three_value_stochastic_bytes(codec, values.size()));
  store_at(buffer.as_mutable<std::byte>(), 0, scale);
  std::uint8_t* const out = octets(buffer.mutable_data() + kFrontBytes);
  const RoundingStream stream = rounding_stream(key);
  parallel_for(codec.threads, buckets_of(values.size(), kTile), [&](std::size_t tile) {
    std::uint8_t digits[kTile + 8];
    const auto part = values.subspan(tile * kTile, std::min(kTile, values.size() - tile * kTile));
    quantize(part, scale, 1, &stream, tile * kTile / kRoundingGroup, digits);
    pack_quintets({digits, part.size()}, out + tile * kTile / kDigitsAByte);
    if (decoded == nullptr) return;
    const auto decode = [&](float* to) { dequantize({digits, part.size()}, scale, 1, to); };
    write_decoded(writer_of_decoded(values, decoded), decoded + tile * kTile, part.size(), decode);
  });
  return buffer;
}

Buffer recode_three_value_stochastic_nearest(const ValueCodec& codec, std::span<const float> values,
                                             const RoundingKey& key, float* decoded) {
  Buffer buffer = encode_three_value_stochastic(codec, values, key);
  PoolVector<float> levels(values.size());
  decode_three_value_stochastic(buffer.bytes(), levels, codec.threads);
  double sum = 0;
  std::uint64_t count = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (levels[i] == 0) continue;
    sum += std::abs(static_cast<double>(values[i]));
    count += 1;
  }
  const auto scale = count == 0 ? 0.0f : static_cast<float>(sum / static_cast<double>(count));
  store_at(buffer.as_mutable<std::byte>(), 0, scale);
  decode_three_value_stochastic(buffer.bytes(), {decoded, values.size()}, codec.threads);
  return buffer;
}

void decode_three_value_stochastic(std::span<const std::byte> bytes, std::span<float> values, int threads) {
  expect_bytes("three_value_stochastic", bytes, kFrontBytes + quintets_of(values.size()));
  const QuintetTable table(load_scale("three_value_stochastic", bytes, 0));
  decode_quintets("three_value_stochastic", bytes.subspan(kFrontBytes), table, values, threads);
}

}  // namespace tulle
