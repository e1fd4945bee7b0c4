// The invariants of the design, on every row of the registry: same bits everywhere, exact sums, any P, any size.
#include "collectives/harness.hpp"

namespace tulle::testing {
namespace {

class EveryRow : public ::testing::TestWithParam<std::tuple<const Algorithm*, int>> {
 protected:
  const Algorithm& row() const { return *std::get<0>(GetParam()); }
  int ranks() const { return std::get<1>(GetParam()); }
  CallOptions options() const { return {.algorithm = row().name, .root = ranks() - 1}; }
};

INSTANTIATE_TEST_SUITE_P(
    Registry, EveryRow, ::testing::Combine(::testing::ValuesIn(rows_on_messages()), ::testing::ValuesIn(rank_counts())),
    [](const auto& info) {
      return std::string(std::get<0>(info.param)->name) + "_on_" + std::to_string(std::get<1>(info.param)) + "_ranks";
    });

std::vector<std::uint64_t> nnz_choices(std::uint64_t dimension) {
  std::vector<std::uint64_t> choices = {0, 1};
  for (const double density : {0.001, 0.01, 0.3, 1.0}) {
    choices.push_back(static_cast<std::uint64_t>(std::ceil(density * static_cast<double>(dimension))));
  }
  return choices;
}

TEST_P(EveryRow, sums_exactly_and_gives_the_same_bits_everywhere) {
  const auto p = static_cast<std::uint64_t>(ranks());
  for (const std::uint64_t dimension : {std::uint64_t{0}, std::uint64_t{1}, p - 1, p, std::uint64_t{4097}}) {
    for (const std::uint64_t nnz : nnz_choices(dimension)) {
      SCOPED_TRACE(::testing::Message() << "N = " << dimension << ", nnz = " << nnz);
      const auto integers = make_inputs(ranks(), {.type = ValueType::i64, .dimension = dimension, .nnz = nnz});
      const SimRun run = run_in_simulation(row().kind, integers, options());
      expect_no_errors(run.errors);
      expect_correct<std::int64_t>(row().kind, integers, run.outcomes, options());
    }
  }
}

TEST_P(EveryRow, sums_floats_within_the_rounding_of_any_order) {
  for (const std::uint64_t nnz : nnz_choices(4097)) {
    SCOPED_TRACE(::testing::Message() << "nnz = " << nnz);
    const auto floats = make_inputs(
        ranks(), {.dimension = 4097, .nnz = nnz, .overlap = Overlap::zipf, .values = SyntheticValues::gaussian_like});
    const SimRun run = run_in_simulation(row().kind, floats, options());
    expect_no_errors(run.errors);
    expect_correct<float>(row().kind, floats, run.outcomes, options());
  }
}

TEST_P(EveryRow, sums_a_hundred_thousand_values) {
  for (const std::uint64_t nnz : nnz_choices(100003)) {
    SCOPED_TRACE(::testing::Message() << "nnz = " << nnz);
    const auto inputs = make_inputs(ranks(), {.type = ValueType::i32, .dimension = 100003, .nnz = nnz});
    const SimRun run = run_in_simulation(row().kind, inputs, options());
    expect_no_errors(run.errors);
    expect_correct<std::int32_t>(row().kind, inputs, run.outcomes, options());
  }
}

TEST_P(EveryRow, takes_contributions_of_every_size_at_once) {
  std::vector<AnyStream> inputs;
  for (int rank = 0; rank < ranks(); ++rank) {  // empty, one, some, all
    const std::uint64_t nnz[] = {0, 1, 300, 5000};
    SyntheticSpec spec{.type = ValueType::i64, .dimension = 5000, .nnz = nnz[rank % 4], .rank = rank};
    inputs.push_back(synthetic_stream(spec));
  }
  const SimRun run = run_in_simulation(row().kind, inputs, options());
  expect_no_errors(run.errors);
  expect_correct<std::int64_t>(row().kind, inputs, run.outcomes, options());
}

TEST_P(EveryRow, takes_dense_contributions) {
  auto inputs = make_inputs(ranks(), {.type = ValueType::f64, .dimension = 1000, .nnz = 200});
  for (std::size_t rank = 0; rank < inputs.size(); rank += 2) inputs[rank] = to_dense(inputs[rank], Op::sum());
  const SimRun run = run_in_simulation(row().kind, inputs, options());
  expect_no_errors(run.errors);
  expect_correct<double>(row().kind, inputs, run.outcomes, options());
}

TEST_P(EveryRow, knows_every_op) {
  const Op ops[] = {Op::sum(),
                    Op::prod(),
                    Op::min(),
                    Op::max(),
                    Op::bit_and(),
                    Op::bit_or(),
                    Op::bit_xor(),
                    Op::user<std::int32_t>("saturating_sum", 0, [](std::int32_t a, std::int32_t b) {
                      return std::clamp(a + b, -100, 100);
                    })};
  const auto inputs = make_inputs(ranks(), {.type = ValueType::i32, .dimension = 300, .nnz = 60});
  for (const Op& op : ops) {
    SCOPED_TRACE(op.name());
    CallOptions with_op = options();
    with_op.op = op;
    const SimRun run = run_in_simulation(row().kind, inputs, with_op);
    expect_no_errors(run.errors);
    expect_correct<std::int32_t>(row().kind, inputs, run.outcomes, with_op);
  }
}

// Whichever rank has it, and whether others hold a value there or none.
TEST_P(EveryRow, keeps_nan_in_minima_and_maxima) {
  if (row().kind == OperationKind::broadcast) return;  // which reduces nothing
  for (const Op& op : {Op::min(), Op::max()}) {
    auto inputs = make_inputs(ranks(), {.dimension = 300, .nnz = 60});
    for (std::size_t rank = 0; rank < inputs.size(); ++rank) {
      const std::uint32_t index[] = {static_cast<std::uint32_t>((17 * rank + 3) % 300)};
      const float nan[] = {std::numeric_limits<float>::quiet_NaN()};
      const auto sick =
          Stream<float>::from_sorted(300, std::span<const std::uint32_t>(index), std::span<const float>(nan));
      inputs[rank] = reduce(inputs[rank], sick, op);
      if (rank % 2 == 1) inputs[rank] = to_dense(inputs[rank], op);
    }
    CallOptions with_op = options();
    with_op.op = op;
    const SimRun run = run_in_simulation(row().kind, inputs, with_op);
    expect_no_errors(run.errors);
    for (const Outcome& outcome : run.outcomes) {
      const Range range = outcome.stream.range();
      for (std::size_t rank = 0; rank < inputs.size(); ++rank) {
        const std::uint64_t index = (17 * rank + 3) % 300;
        if (outcome.stream.nnz() == 0 || index < range.begin || index >= range.end) continue;
        EXPECT_TRUE(std::isnan(Stream<float>(outcome.stream).at(index, op))) << op.name() << " at " << index;
      }
    }
  }
}

TEST_P(EveryRow, does_not_depend_on_timing) {
  const auto inputs = make_inputs(ranks(), {.dimension = 2000, .nnz = 150, .values = SyntheticValues::gaussian_like});
  const SimRun calm = run_in_simulation(row().kind, inputs, options());
  expect_no_errors(calm.errors);
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    const SimRun shaken =
        run_in_simulation(row().kind, inputs, options(), {.seed = seed, .faults = {.max_delay_seconds = 1e-3}});
    expect_no_errors(shaken.errors);
    for (std::size_t rank = 0; rank < inputs.size(); ++rank) {
      ASSERT_TRUE(shaken.outcomes[rank].stream == calm.outcomes[rank].stream) << "seed " << seed << ", rank " << rank;
    }
  }
}

class EveryType : public ::testing::TestWithParam<std::tuple<const Algorithm*, ValueType>> {};
INSTANTIATE_TEST_SUITE_P(Registry, EveryType,
                         ::testing::Combine(::testing::ValuesIn(rows_on_messages()),
                                            ::testing::ValuesIn(kAllValueTypes)),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param)->name) + "_of_" +
                                  std::string(to_string(std::get<1>(info.param)));
                         });

TEST_P(EveryType, is_reduced_exactly_where_sums_are_small_integers) {
  const auto& [row, type] = GetParam();
  const auto inputs = make_inputs(6, {.type = type, .dimension = 777, .nnz = 111});
  std::vector<AnyStream> widened;
  for (const AnyStream& input : inputs) widened.push_back(convert(input, compute_type(type)));
  const CallOptions options{.algorithm = row->name};
  SimRun run = run_in_simulation(row->kind, inputs, options);
  expect_no_errors(run.errors);
  for (Outcome& outcome : run.outcomes) {
    ASSERT_EQ(outcome.stream.type(), type);
    ASSERT_EQ(outcome.overflowed, 0u);
    outcome.stream = convert(outcome.stream, compute_type(type));
  }
  visit_compute_type(compute_type(type),
                     [&, row = row]<class V>() { expect_correct<V>(row->kind, widened, run.outcomes, options); });
}

TEST(Overflow, of_f16_is_reported_and_not_hidden) {
  std::vector<AnyStream> inputs;
  for (int rank = 0; rank < 3; ++rank) {
    const std::uint32_t indices[] = {1, 5};
    const Half values[] = {Half(30000.0f), Half(1.0f)};
    inputs.push_back(Stream<Half>::from_sorted<std::uint32_t>(10, indices, values));
  }
  const SimRun run = run_in_simulation(OperationKind::allreduce, inputs);
  expect_no_errors(run.errors);
  EXPECT_EQ(run.outcomes[0].overflowed, 1u);
  EXPECT_TRUE(std::isinf(static_cast<float>(Stream<Half>(run.outcomes[0].stream).at(1))));
  EXPECT_EQ(static_cast<float>(Stream<Half>(run.outcomes[0].stream).at(5)), 3.0f);
}

TEST(HugeDimensions, are_exact_in_sparse_rows_and_refused_by_dense_ones) {
  constexpr std::uint64_t kDimension = (std::uint64_t{1} << 33) + 5;
  std::vector<AnyStream> inputs;
  for (int rank = 0; rank < 5; ++rank) {
    const std::uint64_t indices[] = {(1u << 24) + 1, (std::uint64_t{1} << 31) + 1,
                                     (std::uint64_t{1} << 32) + 1 + static_cast<std::uint64_t>(rank), kDimension - 1};
    const std::int64_t values[] = {1, 2, 3, 4};
    inputs.push_back(Stream<std::int64_t>::from_sorted<std::uint64_t>(kDimension, indices, values));
  }
  for (const Algorithm* row : rows_of(OperationKind::allreduce)) {
    SCOPED_TRACE(row->name);
    const SimRun run = run_in_simulation(row->kind, inputs, {.algorithm = row->name});
    if (row->dense_result) {
      EXPECT_NE(message_of(run.errors[0]).find("refuses 2^32 values"), std::string::npos) << message_of(run.errors[0]);
      continue;
    }
    expect_no_errors(run.errors);
    const Stream<std::int64_t> sum(run.outcomes[0].stream);
    EXPECT_EQ(sum.nnz(), 8u);
    EXPECT_EQ(sum.at((1u << 24) + 1), 5);
    EXPECT_EQ(sum.at((std::uint64_t{1} << 31) + 1), 10);
    EXPECT_EQ(sum.at((std::uint64_t{1} << 32) + 3), 3);
    EXPECT_EQ(sum.at(kDimension - 1), 20);
    for (const Outcome& outcome : run.outcomes) EXPECT_TRUE(outcome.stream == run.outcomes[0].stream);
  }
  expect_no_errors(run_in_simulation(OperationKind::allreduce, inputs).errors);
}

TEST(LongVectors, that_travel_in_several_segments_are_summed_and_their_contributions_counted_once) {
  constexpr int kRanks = 3;
  constexpr std::uint64_t kDimension = 1u << 20, kNnz = 5000;  // blocks of 1.4 MB, two segments on the ring
  const auto inputs = make_inputs(kRanks, {.type = ValueType::i32, .dimension = kDimension, .nnz = kNnz});
  for (const Algorithm* row : rows_of(OperationKind::allreduce)) {
    SCOPED_TRACE(row->name);
    const CallOptions options{.algorithm = row->name};
    const SimRun run = run_in_simulation(row->kind, inputs, options);
    expect_no_errors(run.errors);
    expect_correct<std::int32_t>(row->kind, inputs, run.outcomes, options);
    for (const Outcome& outcome : run.outcomes) EXPECT_EQ(outcome.contributed, kRanks * kNnz);
  }
}

TEST(SparseAllgather, concatenates_streams_that_follow_one_another) {
  std::vector<AnyStream> inputs;
  for (std::uint32_t rank = 0; rank < 7; ++rank) {
    const std::vector<std::uint32_t> indices =
        rank == 3 ? std::vector<std::uint32_t>{} : std::vector<std::uint32_t>{10 * rank, 10 * rank + 9};
    const std::vector<float> values(indices.size(), 1.5f);
    inputs.push_back(Stream<float>::from_sorted<std::uint32_t>(70, indices, values));
  }
  const SimRun run = run_in_simulation(OperationKind::allgather, inputs, {.index_coding = "raw"});
  expect_no_errors(run.errors);
  expect_correct<float>(OperationKind::allgather, inputs, run.outcomes, {});
  EXPECT_EQ(run.outcomes[0].stream.nnz(), 12u);
}

}  // namespace
}  // namespace tulle::testing
