// What holds for every row: lengths, types, exactness, refusals, and that bytes depend on nothing but the input.
#include "tulle/codec/value_coding.hpp"

#include <numeric>

#include "codec/codec_model.hpp"
#include "codec/recode.hpp"

namespace tulle::test {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
const std::size_t kCounts[] = {0, 1, 2, 4, 5, 6, 7, 8, 63, 64, 65, 320, 1000, 1024, 1025, 5121, 20'000};

bool carries_everything(ValueCoding coding) { return coding <= ValueCoding::bf16; }

template <class To, class From>
std::vector<To> converted(const std::vector<From>& values) {
  std::vector<To> result;
  for (const From value : values) result.push_back(static_cast<To>(value));
  return result;
}

class ValueCodecs : public ::testing::TestWithParam<ValueCodec> {
 protected:
  const ValueCodec codec = GetParam();
};

INSTANTIATE_TEST_SUITE_P(Rows, ValueCodecs, ::testing::ValuesIn(codecs_to_test()), [](const auto& info) {
  std::string name = to_string(info.param);
  for (char& letter : name) letter = std::isalnum(static_cast<unsigned char>(letter)) ? letter : '_';
  return name + "_" + std::to_string(info.index);
});

TEST_P(ValueCodecs, have_the_length_that_was_announced) {
  for (const std::size_t count : kCounts) {
    const auto values = random_floats_for(codec.coding, count, count);
    const std::uint64_t announced = encoded_value_bytes(codec, ValueType::f32, count);
    const bool may_be_shorter = codec.coding == ValueCoding::three_lc && codec.zero_runs;
    const std::uint64_t length = encoded(codec, values).size();
    EXPECT_TRUE(length == announced || (may_be_shorter && length < announced)) << count << ": " << length;
  }
}

TEST_P(ValueCodecs, decode_as_many_values_within_the_range_of_the_input) {
  for (const std::size_t count : kCounts) {
    const auto values = random_floats_for(codec.coding, count, count + 1);
    const auto result = round_trip(codec, values);
    ASSERT_EQ(result.size(), count);
    float largest = 0, largest_result = 0;
    for (const float value : values) largest = std::max(largest, std::fabs(value));
    for (const float value : result) largest_result = std::max(largest_result, std::fabs(value));
    const bool by_norm = codec.coding == ValueCoding::qsgd && codec.norm == ScaleNorm::l2;
    const double factor = by_norm ? std::sqrt(static_cast<double>(count)) : codec.sparsity;
    EXPECT_LE(largest_result, largest * factor * 1.01) << count;
  }
}

// To new memory, to the caller's, and to where the values are.
void expect_recoded(const ValueCodec& codec, const std::vector<float>& values) {
  const Buffer source = Buffer::copy_of(std::as_bytes(std::span(values)));
  const Buffer bytes = encode_values(codec, ValueType::f32, source, kKey);
  const Buffer decoded = decode_values(codec.coding, ValueType::f32, bytes.bytes(), values.size());
  for (const Buffer& landing : {Buffer(), Buffer::allocate(source.size()), source}) {
    const RecodedValues recoded = recode_values(codec, ValueType::f32, source, kKey, landing);
    EXPECT_TRUE(std::ranges::equal(recoded.bytes.bytes(), bytes.bytes())) << values.size();
    EXPECT_TRUE(std::ranges::equal(recoded.decoded.bytes(), decoded.bytes())) << values.size();
    if (!landing.empty()) {
      EXPECT_EQ(recoded.decoded.data(), landing.data());
    }
  }
}

TEST_P(ValueCodecs, recode_to_the_bytes_and_values_of_encoding_and_decoding) {
  for (const std::size_t count : {0u, 1u, 5u, 1025u, 20'000u}) {
    expect_recoded(codec, random_floats_for(codec.coding, count, count + 2));
  }
}

TEST(Recoding, gives_the_same_where_it_writes_past_the_cache) {
  std::vector<float> values(4'200'007);
  for (std::uint32_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>(static_cast<int>(i * 2654435761u)) / 7;
  for (const char* const text : {"f16", "qsgd", "int8", "three_value_stochastic", "three_lc"}) {
    ValueCodec codec = parse_value_codec(text);
    for (codec.threads = 1; codec.threads <= 3; codec.threads += 2) expect_recoded(codec, values);
  }
}

template <class V>
void check_type(const ValueCodec& codec) {
  const auto values = converted<V>(random_floats_for(codec.coding, 1000, 5));
  const Buffer input = buffer_of(values);
  const Buffer bytes = encode_values(codec, kValueTypeOf<V>, input, kKey);
  const Buffer output = decode_values(codec.coding, kValueTypeOf<V>, bytes.bytes(), values.size());
  const bool exact = fidelity_of(codec.coding, kValueTypeOf<V>) == Fidelity::exact;
  const Buffer expected = exact ? input : buffer_of(converted<V>(round_trip(codec, converted<float>(values))));
  EXPECT_EQ(hex(output.bytes()), hex(expected.bytes())) << to_string(kValueTypeOf<V>);
}

TEST_P(ValueCodecs, code_other_floats_as_their_f32_values) {
  check_type<float>(codec);
  check_type<double>(codec);
  check_type<Half>(codec);
  check_type<Bfloat16>(codec);
}

TEST_P(ValueCodecs, refuse_integers_unless_raw) {
  const Buffer input = buffer_of(std::vector<std::int64_t>{1, -2, 3});
  if (codec.coding == ValueCoding::raw) {
    const Buffer bytes = encode_values(codec, ValueType::i64, input, kKey);
    EXPECT_EQ(hex(decode_values(codec.coding, ValueType::i64, bytes.bytes(), 3).bytes()), hex(input.bytes()));
    return;
  }
  EXPECT_CONTAINS(message_of(ErrorKind::bad_input, [&] { encode_values(codec, ValueType::i64, input, kKey); }),
                  "integers travel as raw");
  message_of(ErrorKind::bad_message, [&] { decode_values(codec.coding, ValueType::i64, input.bytes(), 3); });
}

TEST_P(ValueCodecs, carry_infinity_and_nan_or_name_the_first) {
  for (const float special : {kInfinity, -kInfinity, kNan}) {
    for (const std::size_t place : {0u, 5u, 1500u, 1999u}) {
      auto values = random_floats_for(codec.coding, 2000, 3);
      values[place] = special;
      values[1999] = special;
      if (carries_everything(codec.coding)) {
        EXPECT_TRUE(same_value(round_trip(codec, values)[place], special));
      } else {
        const std::string text = message_of(ErrorKind::bad_input, [&] { encoded(codec, values); });
        EXPECT_CONTAINS(text, "value " + std::to_string(place) + " is ");
        EXPECT_CONTAINS(text, to_string(codec.coding).data());
      }
    }
  }
}

TEST_P(ValueCodecs, keep_zeros) {
  const std::vector<float> zeros(1000, 0.0f);
  EXPECT_EQ(hex(buffer_of(round_trip(codec, zeros)).bytes()), hex(buffer_of(zeros).bytes()));
}

TEST_P(ValueCodecs, take_the_smallest_and_largest_numbers) {
  for (const float size :
       {std::numeric_limits<float>::denorm_min(), 1e-40f, 1e-30f, std::numeric_limits<float>::max()}) {
    std::vector<float> values = random_floats_for(codec.coding, 2000, 9);
    for (float& value : values) value = std::clamp(value, -1.0f, 1.0f) == 0 ? 0 : std::copysign(size, value);
    for (const float value : round_trip(codec, values)) EXPECT_TRUE(std::isfinite(value)) << size;
  }
}

TEST_P(ValueCodecs, give_the_same_bytes_on_every_target_and_for_any_threads) {
  const auto values = random_floats_for(codec.coding, 150'001, 11);
  const Buffer expected = encoded(codec, values);
  const auto expected_values = decoded(codec.coding, expected, values.size());
  const auto matches = [&](const Buffer& bytes) { return std::ranges::equal(bytes.bytes(), expected.bytes()); };
  for_each_target([&] {
    EXPECT_TRUE(matches(encoded(codec, values)));
    EXPECT_TRUE(decoded(codec.coding, expected, values.size()) == expected_values);
  });
  for (const int threads : {2, 3, 0}) {
    ValueCodec threaded = codec;
    threaded.threads = threads;
    EXPECT_TRUE(matches(encoded(threaded, values))) << threads;
  }
}

// Counts around the parts that threads take: 2^16 values, or 2^16 bytes of five.
TEST_P(ValueCodecs, give_the_same_values_for_any_threads) {
  for (const std::size_t count : {65'535, 65'537, 131'072, 400'003, 1'000'000}) {
    const Buffer bytes = encoded(codec, random_floats_for(codec.coding, count, 12));
    const auto expected = decoded(codec.coding, bytes, count);
    for (const int threads : {2, 3, 0}) {
      const Buffer values = decode_values(codec.coding, ValueType::f32, bytes.bytes(), count, {}, threads);
      EXPECT_TRUE(vector_of<float>(values) == expected) << count << " values, " << threads << " threads";
    }
  }
}

TEST_P(ValueCodecs, decode_into_the_landing_where_it_fits) {
  const auto values = random_floats_for(codec.coding, 100, 13);
  const Buffer bytes = encoded(codec, values);
  Buffer landing = Buffer::allocate(400);
  const std::byte* const place = landing.data();
  EXPECT_EQ(decode_values(codec.coding, ValueType::f32, bytes.bytes(), 100, landing).data(), place);
  EXPECT_EQ(hex(landing.bytes()), hex(buffer_of(round_trip(codec, values)).bytes()));
  EXPECT_NE(decode_values(codec.coding, ValueType::f32, bytes.bytes(), 100, Buffer::allocate(396)).size(), 396u);
}

TEST_P(ValueCodecs, allocate_nothing_in_the_steady_state) {
  const auto values = buffer_of(random_floats_for(codec.coding, 10'000, 15));
  const auto once = [&] {
    const Buffer bytes = encode_values(codec, ValueType::f32, values, kKey);
    decode_values(codec.coding, ValueType::f32, bytes.bytes(), 10'000);
  };
  once();
  const std::uint64_t before = pool_stats().system_allocations;
  once();
  EXPECT_EQ(pool_stats().system_allocations, before);
}

TEST(ValueCoding, int8_takes_one_scale_for_a_tensor_by_name) {
  const ValueCodec codec = parse_value_codec("int8:bucket=all");
  EXPECT_EQ(to_string(codec), "int8:bucket=all");
  std::vector<float> values(3000, 0.5f);
  values.back() = 254;  // a level is 2: far from it, in other buckets of 1024, values vanish too
  EXPECT_EQ(encoded(codec, values).size(), 4u + 4u + 3000u);
  EXPECT_EQ(round_trip(codec, values).front(), 0);
  EXPECT_NE(round_trip(parse_value_codec("int8"), values).front(), 0);
  EXPECT_EQ(round_trip(codec, values).back(), 254);
}

TEST(ValueCoding, counts_that_the_bytes_cannot_hold_are_refused) {
  const Buffer bytes = bytes_of({0, 0, 0, 0, 1, 0, 0, 0, 255});
  for (const ValueCodecRow& row : value_codecs()) {
    if (row.coding == ValueCoding::same_sign_mean) continue;
    const auto decode = [&] { decode_values(row.coding, ValueType::f32, bytes.bytes(), std::uint64_t{1} << 50); };
    message_of(ErrorKind::bad_message, decode);
  }
  message_of(ErrorKind::bad_message, [&] { decode_values(ValueCoding{77}, ValueType::f32, bytes.bytes(), 1); });
}

// 1 + 2^-11 lies halfway between two f16, 1 + 2^-8 halfway between two bf16: to the even one, 1. No number becomes
// infinite.
TEST(ValueCoding, halves_round_to_even) {
  EXPECT_EQ(round_trip({.coding = ValueCoding::f16}, {1 + 0x1p-11f, 1 + 3 * 0x1p-11f, 70000.0f, -kInfinity}),
            (std::vector<float>{1, 1 + 0x1p-9f, 65504, -kInfinity}));
  EXPECT_EQ(round_trip({.coding = ValueCoding::bf16}, {1 + 0x1p-8f, 1 + 3 * 0x1p-8f}),
            (std::vector<float>{1, 1 + 0x1p-6f}));
  constexpr float kMost = std::numeric_limits<float>::max();
  EXPECT_EQ(round_trip({.coding = ValueCoding::bf16}, {kMost, -kMost, kInfinity, 0x1.ffp127f}),
            (std::vector<float>{0x1.fep127f, -0x1.fep127f, kInfinity, 0x1.fep127f}));
  const double wide = 1 + 0x1p-30;
  const Buffer bytes = encode_values({.coding = ValueCoding::f32}, ValueType::f64, buffer_of(std::vector{wide}), kKey);
  EXPECT_EQ(vector_of<double>(decode_values(ValueCoding::f32, ValueType::f64, bytes.bytes(), 1))[0], 1.0);
}

// No number becomes infinite: not an f64 in f32, and not an f16 whose coding decodes it to more.
TEST_P(ValueCodecs, keep_numbers_that_their_type_does_not_hold_finite) {
  if (codec.coding == ValueCoding::raw) return;
  const Buffer wide = buffer_of(std::vector<double>(3, 1e300)), narrow = buffer_of(std::vector<Half>(3, Half(65504)));
  const Buffer wide_bytes = encode_values(codec, ValueType::f64, wide, kKey);
  for (const double value : vector_of<double>(decode_values(codec.coding, ValueType::f64, wide_bytes.bytes(), 3))) {
    EXPECT_TRUE(std::isfinite(value));
  }
  const Buffer narrow_bytes = encode_values(codec, ValueType::f16, narrow, kKey);
  for (const Half value : vector_of<Half>(decode_values(codec.coding, ValueType::f16, narrow_bytes.bytes(), 3))) {
    EXPECT_TRUE(std::isfinite(static_cast<float>(value)));
  }
}

// The first bucket holds 1, -4, 0, 3: the mean of 1, 0, 3 is 4/3, that of the negative ones -4. The second holds 2 and
// -1.
TEST(ValueCoding, one_bit_mqe_sends_signs_and_two_means_a_bucket) {
  const std::vector<float> values{1, -4, 0, 3, 2, -1};
  const Buffer bytes = encoded(parse_value_codec("one_bit_mqe:bucket=4"), values);
  EXPECT_EQ(hex(bytes.bytes()),
            "04 00 00 00 "              // bucket
            "ab aa aa 3f 00 00 80 c0 "  // 4/3, -4
            "00 00 00 40 00 00 80 bf "  // 2, -1
            "22");                      // bits 1 and 5
  const float third = 4.0f / 3;
  EXPECT_EQ(decoded(ValueCoding::one_bit_mqe, bytes, 6), (std::vector<float>{third, -4, third, third, 2, -1}));
}

TEST(ValueCoding, same_sign_mean_sends_one_number) {
  const ValueCodec codec{.coding = ValueCoding::same_sign_mean};
  EXPECT_EQ(hex(encoded(codec, {-1, -2, 0, -3}).bytes()), "00 00 c0 bf");  // -1.5
  EXPECT_EQ(round_trip(codec, {1, 2, 3}), (std::vector<float>{2, 2, 2}));
  EXPECT_CONTAINS(message_of(ErrorKind::bad_input, [&] { encoded(codec, {0, -1, -2, 5}); }), "value 3 is 5");
}

// The largest magnitude 254 is level 127, so a level is 2 wide: 1 is half a level and goes away from zero, 0.99 does
// not.
TEST(ValueCoding, int8_rounds_halves_away_from_zero) {
  const std::vector<float> values{254, 1, -1, 0.99f, -3};
  const Buffer bytes = encoded({.coding = ValueCoding::int8}, values);
  EXPECT_EQ(hex(bytes.bytes()), "00 04 00 00 00 00 7e 43 fe 80 7e 7f 7d");
  EXPECT_EQ(decoded(ValueCoding::int8, bytes, 5), (std::vector<float>{254, 2, -2, 0, -4}));
}

// The mean is 1 and σ = 4 (squares add up to 64, by n − 1 = 4), so that with 2 bits and sigma=6 a bin is 6 wide: bin 2
// takes [-2, 4), bin 3 what is above, bin 1 [-8, -2), bin 0 what is below.
TEST(ValueCoding, codebook_sends_the_means_of_its_bins) {
  const std::vector<float> values{1, 5, -3, 5, -3};
  const Buffer bytes = encoded(parse_value_codec("codebook:bits=2"), values);
  EXPECT_EQ(hex(bytes.bytes()),
            "02 00 00 00 "                                      // bits, reserved
            "00 00 00 00 00 00 40 c0 00 00 80 3f 00 00 a0 40 "  // 0 (empty), -3, 1, 5
            "de 01");                                           // codes 2, 3, 1, 3, 1
  EXPECT_EQ(decoded(ValueCoding::codebook, bytes, 5), values);
  // With sigma=24 a bin is 24 wide, and one holds all.
  EXPECT_EQ(round_trip(parse_value_codec("codebook:bits=2,sigma=24"), values), std::vector<float>(5, 1));
  // With 8.4 the bin in the middle ends at 1 ± 4.2; a σ by n would end it at 1 ± 3.8.
  EXPECT_EQ(round_trip(parse_value_codec("codebook:bits=2,sigma=8.4"), values), std::vector<float>(5, 1));
  EXPECT_EQ(round_trip(parse_value_codec("codebook"), {5, 5, 5}), std::vector<float>(3, 5));
}

// What is decoded has the mean of what was coded, and more bits come nearer.
TEST(ValueCoding, codebook_keeps_the_mean_and_loses_less_with_more_bits) {
  const std::vector<float> values = random_floats(20'000, 17);
  double last = 1e9;
  for (int bits = 2; bits <= 8; ++bits) {
    const auto result = round_trip({.coding = ValueCoding::codebook, .bits = bits}, values);
    double error = 0, difference = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      difference += static_cast<double>(values[i] - result[i]);
      error += std::pow(static_cast<double>(values[i] - result[i]), 2);
    }
    EXPECT_NEAR(difference / 20'000, 0, 1e-6);
    EXPECT_LT(error, 0.6 * last) << bits;
    last = error;
  }
}

// SparseLoCo sends the 64 largest of every 4096 values and counts 12 + 2 bits for each. With rice indices the same
// values take 9.7 at most, parameters and codebook included.
TEST(ValueCoding, codebook_and_rice_send_sparseloco_in_less_than_ten_bits_a_value) {
  constexpr std::size_t kChunk = 4096, kKept = 64, kValues = 256 * kChunk;
  const std::vector<float> gradient = random_floats(kValues, 19);
  std::vector<std::uint32_t> indices;
  std::vector<float> kept;
  for (std::size_t chunk = 0; chunk < kValues; chunk += kChunk) {
    std::vector<std::uint32_t> order(kChunk);
    std::iota(order.begin(), order.end(), static_cast<std::uint32_t>(chunk));
    std::ranges::nth_element(order, order.begin() + kKept, std::greater<>(),
                             [&](std::uint32_t i) { return std::fabs(gradient[i]); });
    std::sort(order.begin(), order.begin() + kKept);
    indices.insert(indices.end(), order.begin(), order.begin() + kKept);
  }
  for (const std::uint32_t index : indices) kept.push_back(gradient[index]);
  const AnyStream stream = Stream<float>::from_sorted<std::uint32_t>(kValues, indices, kept);
  const std::uint64_t bytes =
      encode_indices(IndexCoding::rice, stream).size() + encoded(parse_value_codec("codebook:bits=2"), kept).size();
  const double bits = 8 * static_cast<double>(bytes) / static_cast<double>(kept.size());
  RecordProperty("bits_a_value", std::to_string(bits));
  EXPECT_LE(bits, 9.7);
  EXPECT_GE(32.0 * kChunk / kKept / bits, 210);  // times smaller than dense f32
}

TEST(ValueCoding, names_and_options_survive_the_way_through_text) {
  for (const ValueCodec& codec : codecs_to_test()) EXPECT_EQ(parse_value_codec(to_string(codec)), codec);
  EXPECT_EQ(to_string(parse_value_codec("qsgd:norm=max,bits=2")), "qsgd:bits=2,bucket=1024,norm=max");
  EXPECT_EQ(to_string(parse_value_codec("three_lc")), "three_lc:s=1,zero_runs=on");
  const auto fault = [](const char* text) {
    return message_of(ErrorKind::bad_input, [&] { parse_value_codec(text); });
  };
  EXPECT_CONTAINS(fault("zip"), "there are raw, f32");
  EXPECT_CONTAINS(fault("qsgd:s=1"), "'s=1' is no option of qsgd; there are bits, bucket, norm");
  EXPECT_CONTAINS(fault("f16:bits=4"), "it has none");
  EXPECT_CONTAINS(fault("qsgd:bits=x"), "expected a number");
  EXPECT_CONTAINS(fault("qsgd:bits=3"), "expected 2, 4 or 8");
  EXPECT_CONTAINS(fault("qsgd:bucket=0"), "bucket is 0");
  EXPECT_CONTAINS(fault("qsgd:norm=l1"), "expected l2 or max");
  EXPECT_CONTAINS(fault("three_lc:s=2"), "less than 2");
  EXPECT_EQ(to_string(parse_value_codec("codebook:bits=3")), "codebook:bits=3,sigma=6");
  EXPECT_CONTAINS(fault("codebook:bits=9"), "expected 2 to 8");
  EXPECT_CONTAINS(fault("codebook:bits=1"), "expected 2 to 8");
  EXPECT_CONTAINS(fault("codebook:sigma=0"), "sigma is 0");
  EXPECT_CONTAINS(fault("codebook:sigma=inf"), "sigma is inf");
  EXPECT_CONTAINS(fault("three_lc:zero_runs=1"), "expected on or off");
  EXPECT_CONTAINS(fault("qsgd:"), "ends where options should follow");
}

}  // namespace
}  // namespace tulle::test
