// How it works. The array is cut into *units* that begin on a byte of the packed codes: one bucket where that is a
// multiple of eight values, else eight of them. A unit is read once for its scales and again, from the cache, for its
// codes. Units do not depend on each other, so threads take them in any order. Decoding needs no units: threads take
// parts of any bucket, so that one scale for all values does not leave the work to one of them.
#include "codec/bucketed.hpp"

#include <algorithm>
#include <cmath>

#include "base/parallel.hpp"
#include "codec/float_kernels.hpp"
#include "codec/value_codings.hpp"

namespace tulle {
namespace {

constexpr std::uint64_t kValuesAPart = std::uint64_t{1} << 16;  // of a thread: many parts to share, few calls
constexpr std::uint64_t kValuesATile = std::uint64_t{1} << 12;  // whose codes stay in the cache while they are decoded

std::uint64_t unit_of(const BucketedLevels& shape) {
  return shape.bucket % 8 == 0 ? shape.bucket : std::uint64_t{shape.bucket} * 8;
}

// Calls function(offset, length) for each piece of at most `piece` out of `count`.
template <class Function>
void for_each_piece(std::uint64_t count, std::uint64_t piece, Function&& function) {
  for (std::uint64_t at = 0; at < count; at += piece) function(at, std::min(piece, count - at));
}

// Of all multiples of the levels the one with the least squared difference to the values.
float nearest_scale(std::span<const float> values, const std::uint8_t* codes, unsigned levels) {
  double products = 0, squares = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double level = codes[i] - static_cast<int>(levels);
    products += level * static_cast<double>(values[i]);
    squares += level * level;
  }
  constexpr double kLargest = std::numeric_limits<float>::max();
  return squares == 0 ? 0.0f : static_cast<float>(std::min(levels * products / squares, kLargest));
}

// Encodes from a multiple of the unit on. Each bucket draws whole groups, so that none depends on another's length.
class Encoder {
 public:
  Encoder(std::string_view coding, const BucketedLevels& shape, std::span<const float> values,
          const RoundingStream* stream, std::byte* out, float* decoded)
      : coding_(coding),
        shape_(shape),
        values_(values),
        stream_(stream),
        scales_(out),
        codes_(out + buckets_of(values.size(), shape.bucket) * sizeof(float)),
        decoded_(decoded) {}

  void encode(std::uint64_t begin, std::uint64_t length) const {
    const ArrayWriter writer = writer_of_decoded(values_, decoded_);
    PoolVector<std::uint8_t> codes(std::min(unit_of(shape_), length));
    for_each_piece(length, unit_of(shape_), [&](std::uint64_t at, std::uint64_t in_unit) {
      encode_unit(begin + at, {codes.data(), in_unit}, writer);
    });
  }

 private:
  void encode_unit(std::uint64_t begin, std::span<std::uint8_t> codes, const ArrayWriter& writer) const {
    for_each_piece(codes.size(), shape_.bucket, [&](std::uint64_t at, std::uint64_t in_bucket) {
      const auto in = values_.subspan(begin + at, in_bucket);
      const float scale = encode_bucket((begin + at) / shape_.bucket, in, codes.data() + at);
      if (decoded_ != nullptr) decode_bucket(codes.subspan(at, in_bucket), scale, decoded_ + begin + at, writer);
    });
    pack_codes(codes, shape_.bits, codes_ + packed_bytes(begin, shape_.bits));
  }
  float encode_bucket(std::uint64_t number, std::span<const float> values, std::uint8_t* codes) const {
    const float scale = scale_of(shape_.norm, values);
    if (!std::isfinite(scale)) throw_not_finite(coding_, values_);
    quantize(values, scale, shape_.levels, stream_, number * buckets_of(shape_.bucket, kRoundingGroup), codes);
    const float sent = shape_.scales == Scales::nearest ? nearest_scale(values, codes, shape_.levels) : scale;
    std::memcpy(scales_ + number * sizeof sent, &sent, sizeof sent);
    return sent;
  }
  void decode_bucket(std::span<const std::uint8_t> codes, float scale, float* place, const ArrayWriter& writer) const {
    for_each_piece(codes.size(), kDecodedTile, [&](std::uint64_t at, std::uint64_t in_tile) {
      const auto decode = [&](float* to) { dequantize(codes.subspan(at, in_tile), scale, shape_.levels, to); };
      write_decoded(writer, place + at, in_tile, decode);
    });
  }

  std::string_view coding_;
  BucketedLevels shape_;
  std::span<const float> values_;
  const RoundingStream* stream_;
  std::byte* scales_;
  std::byte* codes_;
  float* decoded_;
};

// Decodes from a multiple of eight values on, wherever buckets begin: a scale is all that a value needs to know of its.
class Decoder {
 public:
  Decoder(std::string_view coding, const BucketedLevels& shape, std::span<const std::byte> bytes,
          std::span<float> values)
      : coding_(coding),
        shape_(shape),
        scales_(bytes),
        codes_(bytes.data() + buckets_of(values.size(), shape.bucket) * sizeof(float)),
        values_(values) {}

  void decode(std::uint64_t begin, std::uint64_t length) const {
    std::uint8_t codes[kValuesATile];
    for_each_piece(length, kValuesATile, [&](std::uint64_t at, std::uint64_t in_tile) {
      unpack_codes(codes_ + packed_bytes(begin + at, shape_.bits), shape_.bits, {codes, in_tile});
      decode_tile(begin + at, {codes, in_tile});
    });
  }

 private:
  void decode_tile(std::uint64_t begin, std::span<const std::uint8_t> codes) const {
    for (std::uint64_t at = 0; at < codes.size();) {
      const std::uint64_t number = (begin + at) / shape_.bucket;
      const std::uint64_t in_bucket = std::min((number + 1) * shape_.bucket - begin - at, codes.size() - at);
      decode_bucket(number, codes.subspan(at, in_bucket), &values_[begin + at]);
      at += in_bucket;
    }
  }
  void decode_bucket(std::uint64_t number, std::span<const std::uint8_t> codes, float* values) const {
    const float scale = load_scale(coding_, scales_, number * sizeof(float));
    const unsigned largest = dequantize(codes, scale, shape_.levels, values);
    if (largest > 2 * shape_.levels) reject_values(coding_, fmt::format("{} is no code of a level", largest));
  }

  std::string_view coding_;
  BucketedLevels shape_;
  std::span<const std::byte> scales_;
  const std::byte* codes_;
  std::span<float> values_;
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
                     const RoundingStream* stream, int threads, std::byte* out, float* decoded) {
  const Encoder encoder(coding, shape, values, stream, out, decoded);
  const std::uint64_t part = buckets_of(kValuesAPart, unit_of(shape)) * unit_of(shape);
  parallel_for(threads, buckets_of(values.size(), part), [&](std::size_t i) {
    encoder.encode(i * part, std::min<std::uint64_t>(part, values.size() - i * part));
  });
}

void decode_bucketed(std::string_view coding, const BucketedLevels& shape, std::span<const std::byte> bytes,
                     std::span<float> values, int threads) {
  expect_bytes(coding, bytes, bucketed_bytes(shape, values.size()));
  validate_padding(coding, shape, bytes, values.size());
  const Decoder decoder(coding, shape, bytes, values);
  parallel_for(threads, buckets_of(values.size(), kValuesAPart), [&](std::size_t i) {
    decoder.decode(i * kValuesAPart, std::min<std::uint64_t>(kValuesAPart, values.size() - i * kValuesAPart));
  });
}

}  // namespace tulle
