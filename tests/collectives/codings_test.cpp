// Index codings change bytes and nothing else; value codings leave all ranks with the same bits.
#include <numeric>

#include "collectives/harness.hpp"
#include "collectives/index_choice.hpp"
#include "tulle/codec/registry.hpp"

namespace tulle::testing {
namespace {

std::vector<std::string_view> index_codings() {
  std::vector<std::string_view> names = {kAuto, kSmallest};
  for (const IndexCodec& row : index_codecs()) names.push_back(row.name);
  return names;
}

class EveryIndexCoding : public ::testing::TestWithParam<std::tuple<const Algorithm*, std::string_view>> {};
INSTANTIATE_TEST_SUITE_P(Registry, EveryIndexCoding,
                         ::testing::Combine(::testing::ValuesIn(rows_on_messages()),
                                            ::testing::ValuesIn(index_codings())),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param)->name) + "_with_" +
                                  std::string(std::get<1>(info.param));
                         });

TEST_P(EveryIndexCoding, gives_the_bits_that_raw_indices_give) {
  const auto& [row, coding] = GetParam();
  SimOptions slow;  // where auto finds coding worth its while
  slow.profile = {.alpha_seconds = 3e-5, .beta_seconds_per_byte = 8e-9};
  for (const int ranks : {1, 3, 8}) {
    for (const std::uint64_t nnz : {0, 1, 40, 700, 1900}) {
      SCOPED_TRACE(::testing::Message() << "P = " << ranks << ", nnz = " << nnz);
      const auto inputs = make_inputs(ranks, {.dimension = 2000, .nnz = nnz, .values = SyntheticValues::gaussian_like});
      const SimRun coded = run_in_simulation(row->kind, inputs, {.algorithm = row->name, .index_coding = coding}, slow);
      const SimRun raw = run_in_simulation(row->kind, inputs, {.algorithm = row->name, .index_coding = "raw"}, slow);
      expect_no_errors(coded.errors);
      for (std::size_t rank = 0; rank < inputs.size(); ++rank) {
        const AnyStream& got = coded.outcomes[rank].stream;
        ASSERT_TRUE(to_dense(got, Op::sum()) == to_dense(raw.outcomes[rank].stream, Op::sum())) << "rank " << rank;
        const bool is_shared = row->kind == OperationKind::allreduce || row->kind == OperationKind::allgather;
        ASSERT_TRUE(!is_shared || got == coded.outcomes[0].stream) << "rank " << rank;
      }
    }
  }
}

TEST(IndexCodings, of_64_bit_indices_are_exact) {
  constexpr std::uint64_t kDimension = (std::uint64_t{1} << 40) + 3;
  std::vector<AnyStream> inputs;
  for (std::uint64_t rank = 0; rank < 5; ++rank) {
    const std::uint64_t indices[] = {3 + rank, std::uint64_t{1} << 33, kDimension - 1};
    const std::int64_t values[] = {1, 2, 3};
    inputs.push_back(Stream<std::int64_t>::from_sorted<std::uint64_t>(kDimension, indices, values));
  }
  for (const std::string_view coding : index_codings()) {
    if (coding == "bitmap") continue;  // 2^37 bytes
    SCOPED_TRACE(coding);
    const SimRun run = run_in_simulation(OperationKind::allreduce, inputs,
                                         {.algorithm = "ssar_split_allgather", .index_coding = coding});
    expect_no_errors(run.errors);
    EXPECT_EQ(Stream<std::int64_t>(run.outcomes[4].stream).at(kDimension - 1), 15);
    EXPECT_EQ(run.outcomes[0].stream.nnz(), 7u);
  }
}

TEST(IndexCodings, save_what_the_entropy_allows) {
  // At 1 % an index carries 8.08 bits. Values stay 32 bits wide.
  const auto inputs = make_inputs(4, {.dimension = 1u << 18, .nnz = (1u << 18) / 100});
  const auto bytes = [&](std::string_view coding) {
    const SimRun run = run_in_simulation(OperationKind::allgather, inputs, {.index_coding = coding});
    expect_no_errors(run.errors);
    return static_cast<double>(run.outcomes[0].counts.data_bytes_sent);
  };
  EXPECT_NEAR(bytes("smallest") / bytes("raw"), (32 + 8.15) / 64, 0.01);
}

TEST(IndexCodings, are_chosen_by_bytes_and_speed) {
  const Profile fast{.alpha_seconds = 1e-6, .beta_seconds_per_byte = 1e-10};
  const Profile slow{.alpha_seconds = 3e-5, .beta_seconds_per_byte = 8e-9};
  EXPECT_EQ(IndexChoice(kAuto, fast).for_density(0.001, 4), IndexCoding::raw);
  EXPECT_NE(IndexChoice(kAuto, slow).for_density(0.001, 4), IndexCoding::raw);
  EXPECT_EQ(IndexChoice(kAuto, slow).for_density(0.6, 4), IndexCoding::bitmap);
}

TEST(LayoutRule, moves_with_the_coding) {
  // Raw pairs stop paying at half; a bitmap and f32 values only where 31 of 32 are there.
  const Profile slow{.alpha_seconds = 3e-5, .beta_seconds_per_byte = 8e-9};
  EXPECT_EQ(IndexChoice("raw", slow).layout_rule(4).most_sparse(1000, 1000, ValueType::f32), 500u);
  EXPECT_EQ(IndexChoice(kSmallest, slow).layout_rule(4).most_sparse(1000, 1000, ValueType::f32), 968u);
  EXPECT_EQ(IndexChoice(kSmallest, slow).layout_rule(0.5).most_sparse(1000, 1000, ValueType::f32), 750u);
  const std::uint64_t by_time = IndexChoice(kAuto, slow).layout_rule(4).most_sparse(1000, 1000, ValueType::f32);
  EXPECT_GT(by_time, 500u);
  EXPECT_LT(by_time, 968u);
}

TEST(IndexCodings, that_do_not_exist_are_refused_with_those_that_do) {
  const auto inputs = make_inputs(2, {.dimension = 10, .nnz = 3});
  const SimRun run = run_in_simulation(OperationKind::allreduce, inputs, {.index_coding = "huffman"});
  EXPECT_NE(message_of(run.errors[0]).find("there are auto, smallest, raw"), std::string::npos)
      << message_of(run.errors[0]);
}

std::vector<const Algorithm*> rows_that_code_values() {
  std::vector<const Algorithm*> rows;
  for (const Algorithm* row : rows_of(OperationKind::allreduce)) {
    if (row->codes_values) rows.push_back(row);
  }
  return rows;
}

class EveryValueCoding : public ::testing::TestWithParam<std::tuple<const Algorithm*, const ValueCodecRow*>> {
 protected:
  CallOptions options() const {
    return {.algorithm = std::get<0>(GetParam())->name,
            .value_coding = {.coding = std::get<1>(GetParam())->coding, .bucket = 128}};
  }
};
std::vector<const ValueCodecRow*> value_codings() {
  std::vector<const ValueCodecRow*> rows;
  for (const ValueCodecRow& row : value_codecs()) rows.push_back(&row);
  return rows;
}
INSTANTIATE_TEST_SUITE_P(Registry, EveryValueCoding,
                         ::testing::Combine(::testing::ValuesIn(rows_that_code_values()),
                                            ::testing::ValuesIn(value_codings())),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param)->name) + "_with_" +
                                  std::string(std::get<1>(info.param)->name);
                         });

// What same_sign_mean asks for.
void make_positive(std::vector<AnyStream>& inputs) {
  for (AnyStream& input : inputs) {
    const Stream<float> stream(input);
    std::vector<float> values(stream.values().begin(), stream.values().end());
    for (float& value : values) value = std::abs(value);
    input = Stream<float>::from_sorted<std::uint32_t>(input.dimension(), stream.indices<std::uint32_t>(), values);
  }
}

TEST_P(EveryValueCoding, gives_the_same_bits_everywhere) {
  for (const bool codes_contributions : {false, true}) {
    for (const int ranks : {1, 2, 5, 8}) {
      SCOPED_TRACE(::testing::Message() << "P = " << ranks);
      auto inputs = make_inputs(ranks, {.dimension = 3000, .nnz = 400, .values = SyntheticValues::gaussian_like});
      CallOptions coded = options();
      coded.codes_contributions = codes_contributions;
      if (coded.value_coding.coding == ValueCoding::same_sign_mean) make_positive(inputs);
      const SimRun run = run_in_simulation(OperationKind::allreduce, inputs, coded);
      expect_no_errors(run.errors);
      for (const Outcome& outcome : run.outcomes) ASSERT_TRUE(outcome.stream == run.outcomes[0].stream);
    }
  }
}

class EveryUnbiasedCoding : public EveryValueCoding {};
std::vector<const ValueCodecRow*> unbiased_codings() {
  std::vector<const ValueCodecRow*> rows;
  for (const ValueCodecRow* row : value_codings()) {
    if (row->fidelity != Fidelity::biased) rows.push_back(row);
  }
  return rows;
}
INSTANTIATE_TEST_SUITE_P(Registry, EveryUnbiasedCoding,
                         ::testing::Combine(::testing::ValuesIn(rows_that_code_values()),
                                            ::testing::ValuesIn(unbiased_codings())),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param)->name) + "_with_" +
                                  std::string(std::get<1>(info.param)->name);
                         });

// The mean of many unbiased sums is the sum; one that is biased would stay away from it.
TEST_P(EveryUnbiasedCoding, is_unbiased) {
  constexpr int kRuns = 200;
  const auto inputs = make_inputs(3, {.dimension = 300, .nnz = 100, .values = SyntheticValues::gaussian_like});
  std::vector<double> mean(300);
  CallOptions coded = options();
  coded.codes_contributions = true;
  for (std::uint64_t step = 0; step < kRuns; ++step) {
    coded.step = step;
    const SimRun run = run_in_simulation(OperationKind::allreduce, inputs, coded);
    expect_no_errors(run.errors);
    const std::vector<float> values = Stream<float>(run.outcomes[0].stream).to_vector();
    for (std::size_t i = 0; i < values.size(); ++i) mean[i] += values[i] / static_cast<double>(kRuns);
  }
  std::vector<double> magnitudes;
  const std::vector<float> expected = serial_reduction<float>(inputs, Op::sum(), &magnitudes);
  // A value v becomes one of two levels, at most a norm apart, and so varies by no more than |v| times that norm.
  const double norm = std::sqrt(std::inner_product(magnitudes.begin(), magnitudes.end(), magnitudes.begin(), 0.0));
  double largest = 0, all = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double deviation = std::sqrt(2 * magnitudes[i] * norm / kRuns);
    if (deviation > 0) largest = std::max(largest, std::abs(mean[i] - expected[i]) / deviation);
    all += std::abs(mean[i] - expected[i]);
  }
  EXPECT_LT(largest, 6);
  EXPECT_LT(all, 0.25 * std::accumulate(magnitudes.begin(), magnitudes.end(), 0.0));
}

TEST(ValueCodings, of_a_quantized_second_phase_save_the_bytes_they_promise) {
  const auto inputs = make_inputs(8, {.dimension = 1u << 16, .nnz = (1u << 16) / 10});
  const auto bytes = [&](const ValueCodec& codec) {
    const SimRun run =
        run_in_simulation(OperationKind::allreduce, inputs,
                          {.algorithm = "dsar_split_allgather", .index_coding = "raw", .value_coding = codec});
    expect_no_errors(run.errors);
    return static_cast<double>(run.outcomes[0].counts.data_bytes_sent);
  };
  const double split = 7.0 / 8 * (1u << 16) / 10 * 8;
  const double dense = 7.0 / 8 * (1u << 16) * 4;
  EXPECT_NEAR(bytes({}), split + dense, 0.02 * dense);
  EXPECT_NEAR(bytes({.coding = ValueCoding::qsgd}), split + dense / 8, 0.02 * dense);
}

TEST(ValueCodings, draw_new_numbers_in_every_step_and_the_same_in_the_same) {
  const auto inputs = make_inputs(4, {.dimension = 500, .nnz = 200, .values = SyntheticValues::gaussian_like});
  const auto run_step = [&](std::uint64_t step, std::uint64_t seed) {
    const SimRun run = run_in_simulation(OperationKind::allreduce, inputs,
                                         {.algorithm = "dsar_split_allgather",
                                          .value_coding = {.coding = ValueCoding::qsgd},
                                          .seed = seed,
                                          .step = step});
    expect_no_errors(run.errors);
    return run.outcomes[0].stream;
  };
  EXPECT_TRUE(run_step(1, 1) == run_step(1, 1));
  EXPECT_FALSE(run_step(1, 1) == run_step(2, 1));
  EXPECT_FALSE(run_step(1, 1) == run_step(1, 2));
}

TEST(ValueCodings, are_refused_by_rows_and_types_that_cannot_use_them) {
  const CallOptions coded{.algorithm = "dense_ring", .value_coding = {.coding = ValueCoding::qsgd}};
  const auto floats = make_inputs(2, {.dimension = 10, .nnz = 3});
  EXPECT_NE(message_of(run_in_simulation(OperationKind::allreduce, floats, coded).errors[0]).find("cannot use qsgd"),
            std::string::npos);
  const auto integers = make_inputs(2, {.type = ValueType::i32, .dimension = 10, .nnz = 3});
  const CallOptions by_auto{.value_coding = {.coding = ValueCoding::qsgd}};
  EXPECT_NE(message_of(run_in_simulation(OperationKind::allreduce, integers, by_auto).errors[0]).find("sums of floats"),
            std::string::npos);
  const SimRun chosen = run_in_simulation(OperationKind::allreduce, floats, by_auto);
  expect_no_errors(chosen.errors);
  EXPECT_TRUE(find_algorithm(OperationKind::allreduce, chosen.outcomes[0].algorithm).codes_values);
}

}  // namespace
}  // namespace tulle::testing
