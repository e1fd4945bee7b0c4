// int8: 255 levels of a bucket's largest magnitude, rounded to the nearest, halves away from zero. Biased.
//
// How it works. As qsgd with 8 bits, the largest magnitude as scale, and no dice: a level is within half a step of its
// value.
//
// Bytes: 4 for the bucket's length, 4 for each bucket, 1 for each value. With bucket=all the "8-bit int" of 3LC's
// Table 1, which has one scale for a whole tensor.
#include "codec/bucketed.hpp"
#include "codec/value_codings.hpp"

namespace tulle {
namespace {

constexpr std::size_t kFrontBytes = 4;

BucketedLevels shape_of(std::uint32_t bucket) {
  return {.bits = 8, .levels = levels_of(8), .bucket = bucket, .norm = ScaleNorm::max};
}

}  // namespace

std::uint64_t int8_bytes(const ValueCodec& codec, std::uint64_t count) {
  return kFrontBytes + bucketed_bytes(shape_of(codec.bucket), count);
}

Buffer encode_int8(const ValueCodec& codec, std::span<const float> values, const RoundingKey& key) {
  return recode_int8(codec, values, key, nullptr);
}

Buffer recode_int8(const ValueCodec& codec, std::span<const float> values, const RoundingKey&, float* decoded) {
  Buffer buffer = Buffer::allocate(int8_bytes(codec, values.size()));
  store_at(buffer.as_mutable<std::byte>(), 0, codec.bucket);
  encode_bucketed("int8", shape_of(codec.bucket), values, nullptr, codec.threads, buffer.mutable_data() + kFrontBytes,
                  decoded);
  return buffer;
}

void decode_int8(std::span<const std::byte> bytes, std::span<float> values, int threads) {
  const std::uint32_t bucket = load_bucket("int8", bytes);
  decode_bucketed("int8", shape_of(bucket), bytes.subspan(kFrontBytes), values, threads);
}

}  // namespace tulle
