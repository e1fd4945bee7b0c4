// one_bit_mqe: a sign bit for each value and two values for each bucket. Biased; made for error feedback.
//
// How it works. A bucket's values are split by sign, zeros with the positive ones. Each is decoded as the mean of its
// side: of all pairs of values to decode to, this one has the smallest squared error.
//
// Bytes: 4 for the bucket's length, 8 for each bucket (the mean of the non-negative values, then of the negative ones),
// 1/8 for each value, a set bit for a negative one. Seide et al., "1-Bit Stochastic Gradient Descent", 2014.
//
// A bucket is read from memory once: its largest magnitude, its sums and its signs are taken one after the other while
// it is in the cache. Where buckets do not begin on a byte of the signs, those are taken of all values at the end.
#include <algorithm>
#include <cmath>

#include "codec/float_kernels.hpp"
#include "codec/levels.hpp"
#include "codec/sign_bits.hpp"
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

bool begin_on_bytes(std::uint32_t bucket, std::size_t count) { return bucket % 8 == 0 || count <= bucket; }

// Calls function(number, first, length) for each bucket of `count` values.
template <class Function>
void for_each_bucket(std::size_t count, std::uint32_t bucket, Function&& function) {
  for (std::size_t i = 0, number = 0; i < count; i += bucket, ++number) {
    function(number, i, std::min<std::size_t>(bucket, count - i));
  }
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
  Buffer buffer = Buffer::allocate(bytes_of(codec.bucket, values.size()));
  const auto bytes = buffer.as_mutable<std::byte>();
  store_at(bytes, 0, codec.bucket);
  std::byte* const signs = bytes.last(packed_bytes(values.size(), 1)).data();
  PoolVector<std::byte> own_signs;  // of a bucket that does not begin on a byte
  if (!begin_on_bytes(codec.bucket, values.size())) own_signs.resize(packed_bytes(codec.bucket, 1));
  for_each_bucket(values.size(), codec.bucket, [&](std::size_t number, std::size_t first, std::size_t length) {
    const auto bucket = values.subspan(first, length);
    if (!std::isfinite(scale_of(ScaleNorm::max, bucket))) throw_not_finite("one_bit_mqe", values);
    const std::size_t negatives = pack_negatives(bucket, own_signs.empty() ? signs + first / 8 : own_signs.data());
    store_at(bytes, kFrontBytes + number * sizeof(Means), means_of(bucket, negatives));
  });
  if (!own_signs.empty()) pack_negatives(values, signs);
  return buffer;
}

void decode_one_bit_mqe(std::span<const std::byte> bytes, std::span<float> values, int) {
  const std::uint32_t bucket = load_bucket("one_bit_mqe", bytes);
  expect_bytes("one_bit_mqe", bytes, bytes_of(bucket, values.size()));
  const auto signs = bytes.last(packed_bytes(values.size(), 1));
  if (values.size() % 8 != 0 && std::to_integer<unsigned>(signs.back()) >> (values.size() % 8) != 0) {
    reject_values("one_bit_mqe", "padding is not zero");
  }
  const auto is_negative = [&](std::size_t i) { return (std::to_integer<unsigned>(signs[i / 8]) >> (i % 8) & 1) != 0; };
  for_each_bucket(values.size(), bucket, [&](std::size_t number, std::size_t first, std::size_t length) {
    const Means means = load_means(bytes, number);
    const auto decoded = values.subspan(first, length);
    if (begin_on_bytes(bucket, values.size()))
      return select_by_bits(&signs[first / 8], means.positive, means.negative, decoded);
    for (std::size_t i = 0; i < length; ++i) decoded[i] = is_negative(first + i) ? means.negative : means.positive;
  });
}

}  // namespace tulle
