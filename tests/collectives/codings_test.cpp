// Index codings change bytes and nothing else; value codings leave all ranks with the same bits.
#include <numeric>

#include "collectives/harness.hpp"
#include "collectives/index_choice.hpp"
#include "tulle/codec/frame.hpp"
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

TEST(IndexCodings, cost_simulated_time) {
  const auto inputs = make_inputs(4, {.dimension = 1u << 16, .nnz = 2000, .overlap = Overlap::disjoint});
  const CallOptions options{.algorithm = "ssar_split_allgather", .index_coding = "rice"};
  const auto seconds = [&](double gamma) {
    return run_in_simulation(OperationKind::allreduce, inputs, options, {.profile = {.gamma_rice_seconds = gamma}})
        .seconds;
  };
  // A rank encodes its 2000 pairs and its 2000 of the sum, decodes as many of the others, and the sum's other 6000;
  // what it sends to itself is not coded.
  EXPECT_NEAR(seconds(1e-6) - seconds(0), 1e-6 / 2 * (1500 + 1500 + 2000 + 6000), 0.1 * 5.5e-3);
}

// Costs and frames must mean the same β, or costs count on bytes that nobody saves.
TEST(IndexCodings, are_chosen_by_what_a_rank_gets_of_its_nodes_port) {
  const Profile profile{.beta_seconds_per_byte = 0.3e-9};
  const auto bytes_with = [&](const std::vector<int>& nodes) {
    const auto inputs = make_inputs(8, {.dimension = 1u << 20, .nnz = 20000});
    std::vector<Outcome> outcomes(8);
    SimWorld world({.ranks = 8, .profile = profile});
    world.run([&](Communicator& communicator) -> Task<> {
      const auto rank = static_cast<std::size_t>(communicator.rank());
      communicator.set_nodes(nodes);
      auto request = iallreduce(communicator, inputs[rank], {.algorithm = "ssar_split_allgather"});
      outcomes[rank] = co_await request;
    });
    return outcomes[0].counts.data_bytes_sent;
  };
  const std::uint64_t alone = bytes_with({0, 1, 2, 3, 4, 5, 6, 7}), shared = bytes_with({0, 0, 0, 0, 1, 1, 1, 1});
  EXPECT_LT(shared, 0.8 * static_cast<double>(alone));
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

// Of a thousand values, how many may be there in a sum that stays sparse.
std::uint64_t most_of_thousand(std::string_view coding, const Profile& profile, double value_bytes) {
  const LayoutRule rule = IndexChoice(coding, profile).layout_rule(value_bytes, 4);
  return rule.most_sparse(1000, 1000, ValueType::f32);
}

TEST(LayoutRule, moves_with_the_coding) {
  // Raw pairs stop paying at half; a bitmap and f32 values only where 31 of 32 are there.
  const Profile slow{.alpha_seconds = 3e-5, .beta_seconds_per_byte = 8e-9};
  EXPECT_EQ(most_of_thousand("raw", slow, 4), 500u);
  EXPECT_EQ(most_of_thousand(kSmallest, slow, 4), 968u);
  EXPECT_EQ(most_of_thousand(kSmallest, slow, 0.5), 750u);
  EXPECT_GT(most_of_thousand(kAuto, slow, 4), 500u);
  EXPECT_LT(most_of_thousand(kAuto, slow, 4), 968u);
}

TEST(LayoutRule, follows_the_width_of_coded_values) {
  EXPECT_EQ(most_of_thousand("raw", {}, 0.5), 111u);  // 0.5 / (0.5 + 4)
  EXPECT_EQ(most_of_thousand("raw", {}, 8), 666u);    // f64
  // Of one bit each, with indices near their entropy h: d + h(d) = 1 at d = 0.227, where no bitmap pays.
  EXPECT_NEAR(static_cast<double>(most_of_thousand(kSmallest, {}, 1.0 / 8)), 227, 10);
}

// 4 bytes take 0.4 ns and a dense kernel 0.3; a pair takes 0.8 on the wire and 3.3 in a kernel: 0.7 / 4.1.
TEST(LayoutRule, counts_computing_where_indices_are_raw) {
  ASSERT_EQ(IndexChoice(kAuto, {}).for_density(0.2, 4), IndexCoding::raw);
  EXPECT_EQ(most_of_thousand(kAuto, {}, 4), 170u);
}

TEST(LayoutRule, is_where_costs_see_it) {
  const Profile slow{.alpha_seconds = 3e-5, .beta_seconds_per_byte = 8e-9};
  for (const Profile& profile : {Profile(), slow}) {
    for (const std::string_view coding : {"auto", "smallest", "raw", "delta_vbyte", "rice", "bitmap"}) {
      for (const double value_bytes : {8.0, 4.0, 2.0, 0.5, 0.2, 0.125}) {
        const IndexChoice choice(coding, profile);
        const double fill = choice.layout_rule(value_bytes, 4).fill;
        SCOPED_TRACE(::testing::Message() << coding << ", " << value_bytes << " bytes: " << fill);
        EXPECT_TRUE(fill <= 0.011 || choice.is_sparse(0.995 * fill, value_bytes, 4));
        EXPECT_TRUE(fill >= 0.99 || !choice.is_sparse(1.005 * fill, value_bytes, 4));
      }
    }
  }
}

// At 5 % on eight ranks the sum has 34 %: as raw pairs with 4-bit values it would take 1.5 bytes a position, dense 0.5.
TEST(LayoutRule, of_a_coded_sum_is_that_of_what_travels) {
  const auto inputs = make_inputs(8, {.dimension = 1u << 16, .nnz = (1u << 16) / 20});
  const auto bytes = [&](std::string_view row) {
    const CallOptions options{
        .algorithm = row, .index_coding = "raw", .value_coding = parse_value_codec("qsgd:bits=4")};
    const SimRun run = run_in_simulation(OperationKind::allreduce, inputs, options);
    expect_no_errors(run.errors);
    return static_cast<double>(run.outcomes[0].counts.data_bytes_sent);
  };
  EXPECT_LE(bytes("ssar_split_allgather"), 1.01 * bytes("dsar_split_allgather"));
}

// A dense form would give the zeros between the values their mean.
TEST(LayoutRule, of_codings_that_lose_zeros_stays_that_of_raw_values) {
  EXPECT_EQ(layout_value_bytes({.coding = ValueCoding::same_sign_mean}, ValueType::f32), 4);
  EXPECT_EQ(layout_value_bytes({.coding = ValueCoding::one_bit_mqe}, ValueType::f32), 4);
  EXPECT_LT(layout_value_bytes({.coding = ValueCoding::qsgd}, ValueType::f32), 0.51);
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
  for (const CodedValues which : {CodedValues::sums, CodedValues::contributions, CodedValues::both}) {
    for (const int ranks : {1, 2, 5, 8}) {
      SCOPED_TRACE(::testing::Message() << "P = " << ranks);
      auto inputs = make_inputs(ranks, {.dimension = 3000, .nnz = 400, .values = SyntheticValues::gaussian_like});
      CallOptions coded = options();
      coded.coded_values = which;
      if (coded.value_coding.coding == ValueCoding::same_sign_mean) make_positive(inputs);
      const SimRun run = run_in_simulation(OperationKind::allreduce, inputs, coded);
      expect_no_errors(run.errors);
      for (const Outcome& outcome : run.outcomes) ASSERT_TRUE(outcome.stream == run.outcomes[0].stream);
    }
  }
}

class EveryAllgatherCoding : public ::testing::TestWithParam<const ValueCodecRow*> {};
INSTANTIATE_TEST_SUITE_P(Registry, EveryAllgatherCoding, ::testing::ValuesIn(value_codings()),
                         [](const auto& info) { return std::string(info.param->name); });

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

// The squared error of the mean of `runs` sums: that of one sum divided by the runs, unless there is a bias.
double squared_error_of_mean(const std::vector<AnyStream>& inputs, CallOptions coded, std::uint64_t first, int runs) {
  std::vector<double> error(inputs.front().dimension());
  const std::vector<float> expected = serial_reduction<float>(inputs, Op::sum(), nullptr);
  for (int run = 0; run < runs; ++run) {
    coded.step = first + static_cast<std::uint64_t>(run);
    const SimRun sum = run_in_simulation(OperationKind::allreduce, inputs, coded);
    expect_no_errors(sum.errors);
    const std::vector<float> values = Stream<float>(sum.outcomes[0].stream).to_vector();
    for (std::size_t i = 0; i < values.size(); ++i) error[i] += (values[i] - expected[i]) / runs;
  }
  return std::inner_product(error.begin(), error.end(), error.begin(), 0.0);
}

// Errors fall as 1/runs. A bias of a tenth of the deviation of one sum would leave four times as much after 300 runs.
TEST_P(EveryUnbiasedCoding, is_unbiased_at_the_rate_of_its_variance) {
  const auto inputs = make_inputs(3, {.dimension = 300, .nnz = 100, .values = SyntheticValues::gaussian_like});
  CallOptions coded = options();
  coded.coded_values = CodedValues::both;
  double of_one = 0;
  for (std::uint64_t run = 0; run < 40; ++run) of_one += squared_error_of_mean(inputs, coded, 1000 + run, 1) / 40;
  const double of_mean = squared_error_of_mean(inputs, coded, 0, 300);
  EXPECT_LE(of_mean, 1.4 * of_one / 300);
  EXPECT_GE(of_mean, 0.6 * of_one / 300);
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

// With contributions alone: the split carries a byte for two values, the gather carries them whole.
TEST(ValueCodings, of_contributions_alone_leave_the_sums_as_they_are) {
  constexpr std::uint64_t kDimension = 1u << 14;
  const auto inputs = make_inputs(8, {.dimension = kDimension, .nnz = kDimension});
  const auto bytes = [&](CodedValues which) {
    const SimRun run = run_in_simulation(
        OperationKind::allreduce, inputs,
        {.algorithm = "dense_split_allgather", .value_coding = {.coding = ValueCoding::qsgd}, .coded_values = which});
    expect_no_errors(run.errors);
    return static_cast<double>(run.outcomes[0].counts.data_bytes_sent);
  };
  const double leg = 7.0 / 8 * kDimension * 4;
  EXPECT_NEAR(bytes(CodedValues::sums), leg + leg / 8, 0.03 * leg);
  EXPECT_NEAR(bytes(CodedValues::contributions), leg / 8 + leg, 0.03 * leg);
  EXPECT_NEAR(bytes(CodedValues::both), leg / 8 + leg / 8, 0.03 * leg);
  std::vector<AnyStream> halves;
  for (const float value : {1024.5f, 0.5f}) {
    const std::vector<float> values(64, value);
    halves.push_back(Stream<float>::dense(values));
  }
  const SimRun run = run_in_simulation(OperationKind::allreduce, halves,
                                       {.algorithm = "dense_split_allgather",
                                        .value_coding = {.coding = ValueCoding::f16},
                                        .coded_values = CodedValues::contributions});
  expect_no_errors(run.errors);
  // 1024.5 becomes 1024 on its way to the owner; so would the sum on its way back.
  for (const float value : Stream<float>(run.outcomes[0].stream).to_vector()) ASSERT_EQ(value, 1024.5f);
}

// RedSync's allgather: indices, a length and a mean.
TEST_P(EveryAllgatherCoding, gives_everyone_the_sum_of_what_each_rank_decodes) {
  for (const int ranks : {1, 2, 5, 8}) {
    SCOPED_TRACE(::testing::Message() << "P = " << ranks);
    auto inputs = make_inputs(ranks, {.dimension = 3000, .nnz = 400, .values = SyntheticValues::gaussian_like});
    const ValueCodec codec{.coding = GetParam()->coding, .bucket = 128};
    if (codec.coding == ValueCoding::same_sign_mean) make_positive(inputs);
    const CallOptions coded{.algorithm = "sparse_allgather", .value_coding = codec, .seed = 3, .step = 9};
    const SimRun run = run_in_simulation(OperationKind::allgather, inputs, coded);
    expect_no_errors(run.errors);
    std::vector<AnyStream> decoded;
    for (std::size_t rank = 0; rank < inputs.size(); ++rank) {
      Segments frame;
      const RoundingKey key{.seed = 3, .rank = rank, .step = 9u << 16};
      encode_frame(inputs[rank], {}, {.values = codec, .rounding = key}, frame);
      std::span<const Buffer> segments = frame;
      decoded.push_back(decode_frame(segments, {.dimension = 3000}).stream);
    }
    std::vector<double> magnitudes;
    const auto expected = serial_reduction<float>(decoded, Op::sum(), &magnitudes);
    for (const Outcome& outcome : run.outcomes) {
      expect_sum<float>(outcome.stream, expected, magnitudes, inputs.size(), Op::sum());
      ASSERT_TRUE(outcome.stream == run.outcomes[0].stream);
    }
  }
}

TEST(AllgatherCodings, send_a_mean_and_indices_in_the_bytes_they_take) {
  auto inputs = make_inputs(4, {.dimension = 1u << 16, .nnz = 4000});
  make_positive(inputs);
  const SimRun run =
      run_in_simulation(OperationKind::allgather, inputs,
                        {.index_coding = "raw", .value_coding = {.coding = ValueCoding::same_sign_mean}});
  expect_no_errors(run.errors);
  EXPECT_NEAR(static_cast<double>(run.outcomes[0].counts.data_bytes_sent), 3 * 4000 * 4, 3 * 64);
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
