// How it works. The array is cut into *units* that begin on a byte of the packed codes: one bucket where that is a
// multiple of eight values, else eight of them. A unit is read once for its scales and again, from the cache, for its
// codes. Units do not depend on each other, so threads take them in any order.
#include "codec/bucketed.hpp"

#include <algorithm>
#include <cmath>

#include "base/parallel.hpp"
#include "codec/float_kernels.hpp"
#include "codec/value_codings.hpp"

namespace tulle {
namespace {

constexpr std::uint64_t kValuesAPart = std::uint64_t{1} << 16;  // of a thread: many parts to share, few calls

std::uint64_t unit_of(const BucketedLevels& shape) {
  return shape.bucket % 8 == 0 ? shape.bucket : std::uint64_t{shape.bucket} * 8;
}

// Calls function(offset, length) for each piece of at most `piece` out of `count`.
template <class Function>
void for_each_piece(std::uint64_t count, std::uint64_t piece, Function&& function) {
  for (std::uint64_t at = 0; at < count; at += piece) function(at, std::min(piece, count - at));
}

// Encodes from a multiple of the unit on. Each bucket draws whole groups, so that none depends on another's length.
class Encoder {
 public:
  Encoder(std::string_view coding, const BucketedLevels& shape, std::span<const float> values,
          const RoundingStream* stream, std::byte* out)
      : coding_(coding),
        shape_(shape),
        values_(values),
        stream_(stream),
        scales_(out),
        codes_(out + buckets_of(values.size(), shape.bucket) * sizeof(float)) {}

  void encode(std::uint64_t begin, std::uint64_t length) const {
    PoolVector<std::uint8_t> codes(std::min(unit_of(shape_), length));
    for_each_piece(length, unit_of(shape_), [&](std::uint64_t at, std::uint64_t in_unit) {
      encode_unit(begin + at, {codes.data(), in_unit});
    });
  }

 private:
  void encode_unit(std::uint64_t begin, std::span<std::uint8_t> codes) const {
    for_each_piece(codes.size(), shape_.bucket, [&](std::uint64_t at, std::uint64_t in_bucket) {
      encode_bucket((begin + at) / shape_.bucket, values_.subspan(begin + at, in_bucket), codes.data() + at);
    });
    pack_codes(codes, shape_.bits, codes_ + packed_bytes(begin, shape_.bits));
  }
  void encode_bucket(std::uint64_t number, std::span<const float> values, std::uint8_t* codes) const {
    const float scale = scale_of(shape_.norm, values);
    if (!std::isfinite(scale)) throw_not_finite(coding_, values_);
    std::memcpy(scales_ + number * sizeof scale, &scale, sizeof scale);
    quantize(values, scale, shape_.levels, stream_, number * buckets_of(shape_.bucket, kRoundingGroup), codes);
  }

  std::string_view coding_;
  BucketedLevels shape_;
  std::span<const float> values_;
  const RoundingStream* stream_;
  std::byte* scales_;
  std::byte* codes_;
};

void validate_padding(std::string_view coding, const BucketedLevels& shape, std::span<const std::byte> codes,
                      std::uint64_t count) {
  const auto used = static_cast<unsigned>(count % 8 * static_cast<unsigned>(shape.bits) % 8);
  if (used != 0 && std::to_integer<unsigned>(codes.back()) >> used != 0) reject_values(coding, "padding is not zero");
}

}  // namespace

std::uint64_t bucketed_bytes(const BucketedLevels& shape, std::uint64_t count) {
  return buckets_of(count, shape.bucket) * sizeof(float) + packed_bytes(count, shape.bits);
}

void encode_bucketed(std::string_view coding, const BucketedLevels& shape, std::span<const float> values,
                     const RoundingStream* stream, int threads, std::byte* out) {
  const Encoder encoder(coding, shape, values, stream, out);
  const std::uint64_t part = buckets_of(kValuesAPart, unit_of(shape)) * unit_of(shape);
  parallel_for(threads, buckets_of(values.size(), part), [&](std::size_t i) {
    encoder.encode(i * part, std::min<std::uint64_t>(part, values.size() - i * part));
  });
}

void decode_bucketed(std::string_view coding, const BucketedLevels& shape, std::span<const std::byte> bytes,
                     std::span<float> values) {
  expect_bytes(coding, bytes, bucketed_bytes(shape, values.size()));
  const auto packed = bytes.subspan(buckets_of(values.size(), shape.bucket) * sizeof(float));
  validate_padding(coding, shape, packed, values.size());
  PoolVector<std::uint8_t> codes(std::min<std::uint64_t>(unit_of(shape), values.size()));
  for_each_piece(values.size(), unit_of(shape), [&](std::uint64_t begin, std::uint64_t in_unit) {
    unpack_codes(packed.data() + packed_bytes(begin, shape.bits), shape.bits, {codes.data(), in_unit});
    for_each_piece(in_unit, shape.bucket, [&](std::uint64_t at, std::uint64_t in_bucket) {
      const float scale = load_scale(coding, bytes, (begin + at) / shape.bucket * sizeof(float));
      const unsigned largest = dequantize({codes.data() + at, in_bucket}, scale, shape.levels, &values[begin + at]);
      if (largest > 2 * shape.levels) reject_values(coding, fmt::format("{} is no code of a level", largest));
    });
  });
}

}  // namespace tulle
