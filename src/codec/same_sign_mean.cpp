// same_sign_mean: one number for all values, their mean. Biased; made for error feedback.
//
// How it works. RedSync sends the k largest values in one step and the k smallest in the next, so that all of a message
// have one sign and little is lost by sending their mean alone. Values of both signs are refused; zeros go with either.
//
// Bytes: 4, whatever the number of values. RedSync, section 5.2.3.
#include <algorithm>
#include <cmath>

#include "codec/float_kernels.hpp"
#include "codec/value_codings.hpp"

namespace tulle {
namespace {

[[noreturn]] void throw_mixed_signs(std::span<const float> values) {
  const auto differs = [&](float value) {
    const auto first = std::find_if(values.begin(), values.end(), [](float other) { return other != 0; });
    return value != 0 && (value < 0) != (*first < 0);
  };
  const auto place = std::find_if(values.begin(), values.end(), differs);
  throw Error(ErrorKind::bad_input,
              fmt::format("value {} is {}: same_sign_mean takes values of one sign", place - values.begin(), *place));
}

}  // namespace

std::uint64_t same_sign_mean_bytes(const ValueCodec&, std::uint64_t) { return sizeof(float); }

Buffer encode_same_sign_mean(const ValueCodec&, std::span<const float> values, const RoundingKey&) {
  if (!std::isfinite(scale_of(ScaleNorm::max, values))) throw_not_finite("same_sign_mean", values);
  const SumsBySign sums = sums_by_sign(values);
  if (sums.negative < 0 && sums.positive > 0) throw_mixed_signs(values);
  const double count = std::max<double>(1, static_cast<double>(values.size()));
  Buffer buffer = Buffer::allocate(sizeof(float));
  store_at(buffer.as_mutable<std::byte>(), 0, static_cast<float>((sums.negative + sums.positive) / count));
  return buffer;
}

void decode_same_sign_mean(std::span<const std::byte> bytes, std::span<float> values, int) {
  expect_bytes("same_sign_mean", bytes, sizeof(float));
  const auto mean = load_at<float>(bytes, 0);
  if (!std::isfinite(mean)) reject_values("same_sign_mean", fmt::format("the mean is {}", mean));
  std::fill(values.begin(), values.end(), mean);
}

}  // namespace tulle
