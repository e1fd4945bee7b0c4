// three_lc: bytes worked out by hand from the paper's definition and what papers leave open, and a short reference.
#include <chrono>

#include "codec/codec_model.hpp"
#include "codec/zero_runs.hpp"

namespace tulle::test {
namespace {

std::string coded(const char* codec, const std::vector<float>& values) {
  return hex(encoded(parse_value_codec(codec), values).bytes());
}

// M = 1. round(v/M) is 1, 0, -1, 1, -1: half of M rounds away from zero. Digits 2, 1, 0, 2, 0:
// 2·81 + 1·27 + 0·9 + 2·3 + 0 = 195 = 0xc3. Five zeros are 81 + 27 + 9 + 3 + 1 = 121 = 0x79; one such byte is no run.
TEST(ThreeLc, has_the_documented_bytes) {
  EXPECT_EQ(coded("three_lc", {1, 0, -1, 0.5f, -0.5f, 0, 0, 0, 0, 0}), "00 00 80 3f 01 00 00 00 c3 79");
}

// M = 1.75, and half of it 0.875: digits 2, 1, 0, 1, 1 give 162 + 27 + 0 + 3 + 1 = 193 = 0xc1.
TEST(ThreeLc, sparsity_raises_the_threshold) {
  EXPECT_EQ(coded("three_lc:s=1.75", {1, 0.874f, -0.875f, 0.5f, 0}), "00 00 e0 3f 01 00 00 00 c1");
  EXPECT_EQ(round_trip(parse_value_codec("three_lc:s=1.75"), {1, 0.5f, -0.9f}), (std::vector<float>{1.75f, 0, -1.75f}));
}

// {-1, 1} and three zeros that fill up: 0·81 + 2·27 + 9 + 3 + 1 = 67 = 0x43.
TEST(ThreeLc, fills_the_last_byte_up_with_zeros) {
  EXPECT_EQ(coded("three_lc", {0, 0, 0, 0, 0, -1, 1}), "00 00 80 3f 01 00 00 00 79 43");
}

// {1, 0, 0, 0, 0} is 162 + 27 + 9 + 3 + 1 = 202 = 0xca. The six zeros after it are five and one filled up: a run of
// two, 243.
TEST(ThreeLc, a_tail_of_zeros_is_part_of_a_run) {
  EXPECT_EQ(coded("three_lc", {1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}), "00 00 80 3f 01 00 00 00 ca f3");
  EXPECT_EQ(coded("three_lc:zero_runs=off", {1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}), "00 00 80 3f 00 00 00 00 ca 79 79");
}

// A run of n bytes of 121, 2 <= n <= 14, is the byte 241 + n; longer ones are split, 14 as often as it fits.
TEST(ThreeLc, runs_have_one_byte_each_up_to_fourteen) {
  const auto run = [](std::size_t length) {
    std::vector<float> values(5 + 5 * length, 0.0f);
    values[0] = 1;
    const Buffer bytes = encoded({.coding = ValueCoding::three_lc}, values);
    return hex(bytes.bytes().subspan(9));
  };
  EXPECT_EQ(run(0), "");
  EXPECT_EQ(run(1), "79");
  for (unsigned length = 2; length <= 14; ++length) {
    EXPECT_EQ(run(length), hex(bytes_of({241 + length}).bytes()));
  }
  EXPECT_EQ(run(15), "ff 79");
  EXPECT_EQ(run(16), "ff f3");
  EXPECT_EQ(run(28), "ff ff");
  EXPECT_EQ(run(43), "ff ff ff 79");
}

TEST(ThreeLc, nothing_but_zeros_has_the_scale_zero) {
  EXPECT_EQ(coded("three_lc", std::vector<float>(70, 0.0f)), "00 00 00 00 01 00 00 00 ff");
  EXPECT_EQ(coded("three_lc", {}), "00 00 00 00 01 00 00 00");
}

// The largest f32 times s would be infinite; the smallest has no half.
TEST(ThreeLc, the_scale_stays_finite_and_the_smallest_value_survives) {
  const float largest = std::numeric_limits<float>::max(), smallest = std::numeric_limits<float>::denorm_min();
  EXPECT_EQ(round_trip(parse_value_codec("three_lc:s=1.5"), {largest, 0}), (std::vector<float>{largest, 0}));
  EXPECT_EQ(round_trip(parse_value_codec("three_lc"), {smallest, 0, -smallest}),
            (std::vector<float>{smallest, 0, -smallest}));
}

// round(v/M) in f64, digit by digit, then runs counted one byte at a time.
std::vector<std::uint8_t> reference(const std::vector<float>& values, double sparsity) {
  double largest = 0;
  for (const float value : values) largest = std::max<double>(largest, std::fabs(value));
  const double m = static_cast<float>(largest * sparsity);
  std::vector<std::uint8_t> bytes;
  std::size_t run = 0;
  const auto end_run = [&] {
    while (run > 1) {
      const std::size_t length = std::min<std::size_t>(run, 14);
      bytes.push_back(static_cast<std::uint8_t>(241 + length));
      run -= length;
    }
    if (run == 1) bytes.push_back(121);
    run = 0;
  };
  for (std::size_t i = 0; i < values.size(); i += 5) {
    unsigned byte = 0;
    for (std::size_t j = i; j < i + 5; ++j) {
      byte = byte * 3 + static_cast<unsigned>((j < values.size() && m > 0 ? std::round(values[j] / m) : 0) + 1);
    }
    if (byte == 121) {
      ++run;
    } else {
      end_run();
      bytes.push_back(static_cast<std::uint8_t>(byte));
    }
  }
  end_run();
  return bytes;
}

// One value in `rarity` is large, in stretches, so that runs of all lengths occur.
std::vector<float> sparse_floats(std::size_t count, std::uint64_t rarity) {
  Philox random(count + rarity);
  std::vector<float> values(count);
  for (float& value : values)
    value = static_cast<float>((random.below(rarity) == 0 ? 1.0 : 0.1) * (random.uniform() - 0.5));
  return values;
}

TEST(ThreeLc, equals_the_reference_on_every_target) {
  for_each_target([] {
    for (const std::size_t count : {0, 1, 4, 5, 9, 80, 1234, 5120, 5121, 30'001}) {
      for (const std::uint64_t rarity : {1, 3, 30, 1000}) {
        const auto values = sparse_floats(count, rarity);
        const Buffer bytes = encoded(parse_value_codec("three_lc:s=1.25"), values);
        EXPECT_EQ(vector_of<std::uint8_t>(bytes.slice(8, bytes.size() - 8)), reference(values, 1.25)) << count;
      }
    }
  });
}

// Long runs lie across every cut between parts, and short ones beside them.
TEST(ThreeLc, the_parallel_form_gives_the_serial_bytes) {
  for (const std::uint64_t rarity : {20, 3000, 200'000}) {
    const auto values = sparse_floats(1'000'003, rarity);
    ValueCodec codec{.coding = ValueCoding::three_lc, .sparsity = 1.5};
    const Buffer serial = encoded(codec, values);
    EXPECT_TRUE(vector_of<std::uint8_t>(serial.slice(8, serial.size() - 8)) == reference(values, 1.5)) << rarity;
    for (const int threads : {2, 4}) {
      codec.threads = threads;
      EXPECT_TRUE(std::ranges::equal(encoded(codec, values).bytes(), serial.bytes())) << rarity << ' ' << threads;
    }
  }
}

// Parts of eight bytes inside one run of a million: what looked for the end of the run anew in each would take minutes.
TEST(ThreeLc, one_long_run_is_looked_at_once) {
  const std::vector<std::uint8_t> quintets(1'000'000, 121);
  std::vector<std::uint8_t> serial(quintets.size()), parallel(quintets.size());
  ZeroRunWriter writer(serial.data());
  writer.put(quintets);
  serial.resize(static_cast<std::size_t>(writer.finish() - serial.data()));
  const auto start = std::chrono::steady_clock::now();
  parallel.resize(static_cast<std::size_t>(write_zero_runs(quintets, 8, 1, parallel.data()) - parallel.data()));
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  EXPECT_TRUE(parallel == serial);
  EXPECT_LT(seconds.count(), 2);
}

// 2^16 bytes and more, of every length of run, so that threads cut them; and what one thread would say of faults.
TEST(ThreeLc, threads_read_runs_and_name_faults_as_one_does) {
  const auto values = sparse_floats(3'000'001, 9);
  const Buffer bytes = encoded({.coding = ValueCoding::three_lc}, values);
  ASSERT_GT(bytes.size(), 3u << 16);
  const auto read = [&](std::size_t count, int threads) {
    return vector_of<float>(decode_values(ValueCoding::three_lc, ValueType::f32, bytes.bytes(), count, {}, threads));
  };
  EXPECT_TRUE(read(values.size(), 4) == read(values.size(), 1));
  for (const std::size_t count : {values.size() - 50, values.size() + 50}) {
    const auto fault = [&](int threads) { return message_of(ErrorKind::bad_message, [&] { read(count, threads); }); };
    EXPECT_EQ(fault(4), fault(1)) << count;
  }
}

TEST(ThreeLc, values_are_minus_m_zero_or_m_within_half_of_m) {
  const auto values = random_floats(7777, 3);
  const auto result = round_trip({.coding = ValueCoding::three_lc, .sparsity = 1.9}, values);
  const float m = *std::ranges::max_element(result);
  for (std::size_t i = 0; i < values.size(); ++i) {
    EXPECT_TRUE(result[i] == 0 || result[i] == m || result[i] == -m);
    EXPECT_LE(std::fabs(result[i] - values[i]), m / 2);
  }
}

}  // namespace
}  // namespace tulle::test
