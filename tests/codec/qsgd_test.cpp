// qsgd and three_value_stochastic: bytes worked out by hand, a short reference, and that they are unbiased.
#include "codec/codec_model.hpp"
#include "codec/levels.hpp"
#include "codec/recode.hpp"
#include "codec/rounding.hpp"

namespace tulle::test {
namespace {

// Buckets of three: {7, -7, 3}, {14, 2, -4}, {0}. By the largest magnitude their scales are 7, 14 and 0, and with seven
// levels every value lies on one, so that no dice are thrown: 7, -7, 3; 7, 1, -2; 0. Codes are level + 7: 14, 0, 10,
// 14, 8, 5, 7. Four bits each, the first in the lower half: a bucket begins in the middle of a byte.
TEST(Qsgd, has_the_documented_bytes_across_a_bucket_boundary) {
  const std::vector<float> values{7, -7, 3, 14, 2, -4, 0};
  const Buffer bytes = encoded(parse_value_codec("qsgd:bits=4,bucket=3,norm=max"), values);
  EXPECT_EQ(hex(bytes.bytes()),
            "04 02 00 00 03 00 00 00 "              // bits, norm max, reserved, bucket
            "00 00 e0 40 00 00 60 41 00 00 00 00 "  // scales 7, 14, 0
            "0e ea 58 07");
  const auto result = decoded(ValueCoding::qsgd, bytes, 7);
  for (std::size_t i = 0; i < 7; ++i) EXPECT_FLOAT_EQ(result[i], values[i]);
}

// The bucket {3, 4} has the norm 5, {-6, 8} the norm 10. With one level 3 is 0.6 of a level: 0 or 5, never else.
TEST(Qsgd, scales_by_the_l2_norm_of_each_bucket) {
  const Buffer bytes = encoded(parse_value_codec("qsgd:bits=2,bucket=2"), {3, 4, -6, 8});
  EXPECT_EQ(hex(bytes.bytes().first(16)), "02 01 00 00 02 00 00 00 00 00 a0 40 00 00 20 41");
  for (const float value : decoded(ValueCoding::qsgd, bytes, 4)) {
    EXPECT_TRUE(value == 0 || value == 5 || value == -10 || value == 10) << value;
  }
}

// The draw of value j: see rounding.hpp.
std::uint32_t drawn(const RoundingStream& stream, std::uint64_t group, std::uint32_t j) {
  const std::uint64_t block = group * 8 + j % 16 / 2;
  const auto words = philox(
      {static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32), stream.nonce[0], stream.nonce[1]},
      stream.key);
  return words[j / 32 * 2 + j % 2] >> (j / 16 % 2 * 16) & 0xffff;
}

// A half is rounded up where the draw is at least a half. The last group's blocks have numbers above 2^32.
TEST(Quantize, draws_by_the_whole_number_of_a_group) {
  const std::vector<float> halves(3 * kRoundingGroup, -0.5f);
  const RoundingStream stream{{1, 0xfffffff0u}, {0x80000001u, 4}};
  for (const std::uint64_t group : {std::uint64_t{0}, (std::uint64_t{1} << 29) - 2, std::uint64_t{1} << 45}) {
    for_each_target([&] {
      std::vector<std::uint8_t> codes(halves.size());
      quantize(halves, 1, 1, &stream, group, codes.data());
      for (std::uint32_t i = 0; i < codes.size(); ++i) {
        const std::uint32_t draw = drawn(stream, group + i / kRoundingGroup, i % kRoundingGroup);
        ASSERT_EQ(codes[i], draw >= 0x8000 ? 0 : 1) << group << ' ' << i;
      }
    });
  }
}

// Rounded the obvious way, in f64, from the scales that `bytes` has.
std::vector<float> reference(const ValueCodec& codec, const std::vector<float>& values, const Buffer& bytes) {
  const RoundingStream stream = rounding_stream(kKey);
  const int levels = (1 << (codec.bits - 1)) - 1;
  const std::uint64_t groups = (codec.bucket + 63) / 64;
  std::vector<float> result;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::size_t bucket = i / codec.bucket, place = i % codec.bucket;
    float scale;
    std::memcpy(&scale, bytes.data() + 8 + bucket * 4, 4);
    const double position = scale == 0 ? 0 : std::fabs(values[i]) / static_cast<double>(scale) * levels;
    const double draw = drawn(stream, bucket * groups + place / 64, place % 64);
    const double level = std::floor(position + (draw + 0.5) / 65536);
    result.push_back(std::copysign(static_cast<float>(level / levels * scale), values[i]));
  }
  return result;
}

TEST(Qsgd, rounds_as_the_reference_does) {
  for (const char* text : {"qsgd:bits=2", "qsgd:bits=4", "qsgd:bits=8", "qsgd:bits=4,bucket=100,norm=max"}) {
    const ValueCodec codec = parse_value_codec(text);
    const auto values = random_floats(5000, 21);
    const Buffer bytes = encoded(codec, values);
    const auto result = decoded(codec.coding, bytes, values.size());
    const auto expected = reference(codec, values, bytes);
    for (std::size_t i = 0; i < values.size(); ++i) EXPECT_NEAR(result[i], expected[i], 1e-6) << text << ' ' << i;
  }
}

TEST(Qsgd, scales_are_the_norms_of_buckets) {
  const auto values = random_floats(3000, 23);
  const Buffer bytes = encoded({.coding = ValueCoding::qsgd}, values);
  for (std::size_t bucket = 0; bucket < 3; ++bucket) {
    double squares = 0;
    for (std::size_t i = bucket * 1024; i < std::min<std::size_t>(3000, bucket * 1024 + 1024); ++i) {
      squares += static_cast<double>(values[i]) * values[i];
    }
    EXPECT_FLOAT_EQ(bytes.slice(8, 12).as<float>()[bucket], static_cast<float>(std::sqrt(squares)));
  }
}

struct Step {
  ValueCodec codec;
  ScaleNorm norm;
  int levels;
};

double step_of(const Step& step, const std::vector<float>& values) {
  double squares = 0, largest = 0;
  for (const double value : values) squares += value * value, largest = std::max(largest, std::fabs(value));
  return (step.norm == ScaleNorm::l2 ? std::sqrt(squares) : largest) / step.levels;
}

// The squared error of the mean of `rounds` decodings over the variance that it has to have. That is 1 for an unbiased
// coding, whatever the number of rounds; with a bias it grows with the rounds.
double normalized_error(const Step& step, const std::vector<float>& values, std::uint64_t rounds) {
  const double width = step_of(step, values);
  std::vector<double> sums(values.size());
  for (std::uint64_t round = 0; round < rounds; ++round) {
    const auto result = round_trip(step.codec, values, {.seed = 5, .step = round});
    for (std::size_t i = 0; i < values.size(); ++i) sums[i] += result[i];
  }
  double error = 0, variance = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double position = std::fabs(values[i]) / width, fraction = position - std::floor(position);
    error += std::pow(sums[i] / static_cast<double>(rounds) - values[i], 2);
    variance += width * width * fraction * (1 - fraction) / static_cast<double>(rounds);
  }
  return error / variance;
}

TEST(Qsgd, is_unbiased_at_the_rate_of_its_variance) {
  const Step steps[] = {{parse_value_codec("qsgd:bits=2"), ScaleNorm::l2, 1},
                        {parse_value_codec("qsgd:bits=4"), ScaleNorm::l2, 7},
                        {parse_value_codec("qsgd:bits=4,norm=max"), ScaleNorm::max, 7},
                        {parse_value_codec("qsgd:bits=8"), ScaleNorm::l2, 127},
                        {parse_value_codec("three_value_stochastic"), ScaleNorm::max, 1}};
  const auto values = random_floats(1000, 31);
  for (const Step& step : steps) {
    for (const std::uint64_t rounds : {30, 1000}) {
      EXPECT_NEAR(normalized_error(step, values, rounds), 1, 0.25) << to_string(step.codec) << ' ' << rounds;
    }
  }
}

TEST(Qsgd, every_part_of_the_key_changes_the_bytes) {
  const ValueCodec codec{.coding = ValueCoding::qsgd};
  const auto values = random_floats(500, 41);
  const std::string bytes = hex(encoded(codec, values, kKey).bytes());
  EXPECT_EQ(hex(encoded(codec, values, kKey).bytes()), bytes);
  const std::uint64_t upper = std::uint64_t{1} << 40;
  for (const RoundingKey& key : {RoundingKey{9, 2, 3, 4}, RoundingKey{1, 9, 3, 4}, RoundingKey{1, 2, 9, 4},
                                 RoundingKey{1, 2, 3, 9}, RoundingKey{1, 2 + upper, 3, 4}}) {
    EXPECT_NE(hex(encoded(codec, values, key).bytes()), bytes);
  }
}

double squares_of(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value * value;
  return sum;
}

// What is left is orthogonal to what was sent, so that it is never longer than what there was.
TEST(NearestScales, leave_less_than_there_was) {
  for (const char* const text : {"qsgd:bits=2", "qsgd:bits=4,bucket=1000", "qsgd:bits=2,norm=max",
                                 "qsgd:bits=8,bucket=7", "three_value_stochastic"}) {
    const ValueCodec codec = parse_value_codec(text);
    for (const float scale : {1e-40f, 1e-25f, 1.0f, 1e30f}) {
      std::vector<float> values = random_floats(3000, 4);
      std::vector<double> given(values.size()), left(values.size());
      for (std::size_t i = 0; i < values.size(); ++i) given[i] = values[i] *= scale;
      const RecodedValues coded = recode_values(codec, ValueType::f32, buffer_of(values), kKey, {}, Scales::nearest);
      const auto sent = decoded(codec.coding, coded.bytes, values.size());
      EXPECT_EQ(sent, vector_of<float>(coded.decoded)) << text;
      for (std::size_t i = 0; i < values.size(); ++i) left[i] = given[i] - static_cast<double>(sent[i]);
      EXPECT_LT(squares_of(left), squares_of(given)) << text << " of " << scale;
    }
  }
}

TEST(NearestScales, are_taken_for_all_types_and_in_place) {
  const ValueCodec codec = parse_value_codec("qsgd:bits=2,bucket=100");
  const std::vector<float> values = random_floats(1000, 5);
  const RecodedValues expected = recode_values(codec, ValueType::f32, buffer_of(values), kKey, {}, Scales::nearest);
  const std::vector<double> wide(values.begin(), values.end());
  const RecodedValues of_f64 = recode_values(codec, ValueType::f64, buffer_of(wide), kKey, {}, Scales::nearest);
  EXPECT_EQ(hex(of_f64.bytes.bytes()), hex(expected.bytes.bytes()));
  const auto floats = vector_of<float>(expected.decoded);
  EXPECT_EQ(vector_of<double>(of_f64.decoded), std::vector<double>(floats.begin(), floats.end()));
  for (const char* const text : {"qsgd:bits=2,bucket=100", "three_value_stochastic"}) {
    const ValueCodec in_place = parse_value_codec(text);
    const RecodedValues apart = recode_values(in_place, ValueType::f32, buffer_of(values), kKey, {}, Scales::nearest);
    const Buffer buffer = buffer_of(values);
    const RecodedValues there = recode_values(in_place, ValueType::f32, buffer, kKey, buffer, Scales::nearest);
    EXPECT_EQ(hex(there.bytes.bytes()), hex(apart.bytes.bytes()));
    EXPECT_EQ(hex(there.decoded.bytes()), hex(apart.decoded.bytes()));
  }
}

}  // namespace
}  // namespace tulle::test
