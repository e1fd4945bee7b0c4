// one_bit_mqe: a sign bit for each value and two values for each bucket. Biased; made for error feedback.
//
// How it works. A bucket's values are split by sign, zeros with the positive ones. Each is decoded as the mean of its
// side: of all pairs of values to decode to, this one has the smallest squared error.
//
// Bytes: 4 for the bucket's length, 8 for each bucket (the mean of the non-negative values, then of the negative ones),
// 1/8 for each value, a set bit for a negative one. Seide et al., "1-Bit Stochastic Gradient Descent", 2014.
#include <algorithm>
#include <cmath>

#include "codec/float_kernels.hpp"
#include "codec/levels.hpp"
#include "codec/value_codings.hpp"

namespace tulle {
namespace {

constexpr std::size_t kFrontBytes = 4;

struct Means {
  float positive = 0;
  float negative = 0;
};

std::uint64_t bytes_of(std::uint32_t bucket, std::uint64_t count) {
  return kFrontBytes + buckets_of(count, bucket) * sizeof(Means) + packed_bytes(count, 1);
}

float mean(double sum, std::size_t count) {
  return count == 0 ? 0.0f : static_cast<float>(sum / static_cast<double>(count));
}

std::size_t mark_negatives(std::span<const float> values, std::uint8_t* codes) {
  std::size_t negatives = 0;
  for (std::size_t i = 0; i < values.size(); ++i) negatives += codes[i] = values[i] < 0;
  return negatives;
}

Means means_of(std::span<const float> values, std::size_t negatives) {
  const SumsBySign sums = sums_by_sign(values);
  return {mean(sums.positive, values.size() - negatives), mean(sums.negative, negatives)};
}

Means load_means(std::span<const std::byte> bytes, std::uint64_t bucket) {
  const auto means = load_at<Means>(bytes, kFrontBytes + bucket * sizeof(Means));
  if (!std::isfinite(means.positive) || !std::isfinite(means.negative) || means.positive < 0 || means.negative > 0) {
    reject_values("one_bit_mqe", fmt::format("the means of bucket {} are not finite or have the wrong sign", bucket));
  }
  return means;
}

}  // namespace

std::uint64_t one_bit_mqe_bytes(const ValueCodec& codec, std::uint64_t count) { return bytes_of(codec.bucket, count); }

Buffer encode_one_bit_mqe(const ValueCodec& codec, std::span<const float> values, const RoundingKey&) {
  if (!std::isfinite(scale_of(ScaleNorm::max, values))) throw_not_finite("one_bit_mqe", values);
  Buffer buffer = Buffer::allocate(bytes_of(codec.bucket, values.size()));
  const auto bytes = buffer.as_mutable<std::byte>();
  store_at(bytes, 0, codec.bucket);
  PoolVector<std::uint8_t> codes(values.size());
  std::size_t at = kFrontBytes;
  for (std::size_t i = 0; i < values.size(); i += codec.bucket, at += sizeof(Means)) {
    const auto bucket = values.subspan(i, std::min<std::size_t>(codec.bucket, values.size() - i));
    store_at(bytes, at, means_of(bucket, mark_negatives(bucket, codes.data() + i)));
  }
  pack_codes(codes, 1, bytes.data() + at);
  return buffer;
}

void decode_one_bit_mqe(std::span<const std::byte> bytes, std::span<float> values) {
  const std::uint32_t bucket = load_bucket("one_bit_mqe", bytes);
  expect_bytes("one_bit_mqe", bytes, bytes_of(bucket, values.size()));
  const auto signs = bytes.last(packed_bytes(values.size(), 1));
  if (values.size() % 8 != 0 && std::to_integer<unsigned>(signs.back()) >> (values.size() % 8) != 0) {
    reject_values("one_bit_mqe", "padding is not zero");
  }
  PoolVector<std::uint8_t> codes(values.size());
  unpack_codes(signs.data(), 1, codes);
  for (std::size_t i = 0; i < values.size(); i += bucket) {
    const Means means = load_means(bytes, i / bucket);
    const std::size_t end = std::min<std::size_t>(i + bucket, values.size());
    for (std::size_t j = i; j < end; ++j) values[j] = codes[j] != 0 ? means.negative : means.positive;
  }
}

}  // namespace tulle
