// qsgd: levels of a bucket's norm, rounded stochastically, in 2, 4 or 8 bits. Unbiased.
//
// How it works. A bucket of B values has one scale, its L2 norm as published or its largest magnitude, which gives a
// smaller error at few bits. With s = 2^(bits − 1) − 1 levels to each side a value is sent as floor(|v|/scale·s), plus
// 1 with the probability of the fractional part, and its sign; decoded as sign·scale·level/s. A bucket of zeros has
// scale 0. For error feedback the scale that is sent is the nearest one instead (recode.hpp).
//
// Bytes: 8 for bits, norm and bucket, 4 for each bucket, bits/8 for each value. Alistarh et al., "QSGD", 2017.
#include "codec/bucketed.hpp"
#include "codec/value_codings.hpp"

namespace tulle {
namespace {

constexpr std::size_t kBitsAt = 0, kNormAt = 1, kReservedAt = 2, kBucketAt = 4, kFrontBytes = 8;

BucketedLevels shape_of(const ValueCodec& codec, Scales scales = Scales::published) {
  return {.bits = codec.bits,
          .levels = levels_of(codec.bits),
          .bucket = codec.bucket,
          .norm = codec.norm,
          .scales = scales};
}

BucketedLevels read_front(std::span<const std::byte> bytes) {
  if (bytes.size() < kFrontBytes) reject_values("qsgd", "the message ends before its parameters do");
  const ValueCodec codec{.coding = ValueCoding::qsgd,
                         .bits = load_at<std::uint8_t>(bytes, kBitsAt),
                         .bucket = load_at<std::uint32_t>(bytes, kBucketAt),
                         .norm = load_at<ScaleNorm>(bytes, kNormAt)};
  if (load_at<std::uint16_t>(bytes, kReservedAt) != 0) reject_values("qsgd", "reserved bytes are not zero");
  try {
    validate(codec);
  } catch (const Error& error) {
    reject_values("qsgd", error.what());
  }
  return shape_of(codec);
}

}  // namespace

std::uint64_t qsgd_bytes(const ValueCodec& codec, std::uint64_t count) {
  return kFrontBytes + bucketed_bytes(shape_of(codec), count);
}

Buffer encode_qsgd(const ValueCodec& codec, std::span<const float> values, const RoundingKey& key) {
  return recode_qsgd(codec, values, key, nullptr);
}

namespace {

Buffer recode(const ValueCodec& codec, std::span<const float> values, const RoundingKey& key, float* decoded,
              Scales scales) {
  Buffer buffer = Buffer::allocate(qsgd_bytes(codec, values.size()));
  const auto bytes = buffer.as_mutable<std::byte>();
  store_at(bytes, kBitsAt, static_cast<std::uint8_t>(codec.bits));
  store_at(bytes, kNormAt, codec.norm);
  store_at(bytes, kReservedAt, std::uint16_t{0});
  store_at(bytes, kBucketAt, codec.bucket);
  const RoundingStream stream = rounding_stream(key);
  encode_bucketed("qsgd", shape_of(codec, scales), values, &stream, codec.threads, bytes.data() + kFrontBytes, decoded);
  return buffer;
}

}  // namespace

Buffer recode_qsgd(const ValueCodec& codec, std::span<const float> values, const RoundingKey& key, float* decoded) {
  return recode(codec, values, key, decoded, Scales::published);
}

Buffer recode_qsgd_nearest(const ValueCodec& codec, std::span<const float> values, const RoundingKey& key,
                           float* decoded) {
  return recode(codec, values, key, decoded, Scales::nearest);
}

void decode_qsgd(std::span<const std::byte> bytes, std::span<float> values, int threads) {
  const BucketedLevels shape = read_front(bytes);
  decode_bucketed("qsgd", shape, bytes.subspan(kFrontBytes), values, threads);
}

}  // namespace tulle
