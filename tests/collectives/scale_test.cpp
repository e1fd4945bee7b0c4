// A thousand simulated ranks, with data and without.
#include "collectives/harness.hpp"

namespace tulle::testing {
namespace {

constexpr int kRanks = 1024;
constexpr std::uint64_t kDimension = 1u << 24;

// Ranks check their result and drop it, so that a thousand results never exist at once.
void run_and_check(std::string_view algorithm, const std::vector<AnyStream>& inputs, std::uint64_t expected_nnz) {
  SimWorld world({.ranks = kRanks});
  int checked = 0;
  world.run([&](Communicator& communicator) -> Task<> {
    auto request =
        iallreduce(communicator, inputs[static_cast<std::size_t>(communicator.rank())], {.algorithm = algorithm});
    const Outcome outcome = co_await request;
    EXPECT_EQ(outcome.stream.nnz(), expected_nnz);
    EXPECT_EQ(outcome.contributed, kRanks * 1000u);
    checked += 1;
  });
  EXPECT_EQ(checked, kRanks);
}

TEST(AThousandRanks, of_recursive_doubling_with_the_same_indices) {
  const auto inputs = make_inputs(kRanks, {.dimension = kDimension, .nnz = 1000, .overlap = Overlap::identical});
  run_and_check("ssar_recursive_double", inputs, 1000);
}

TEST(AThousandRanks, of_split_allgather_with_different_indices) {
  const auto inputs = make_inputs(kRanks, {.dimension = kDimension, .nnz = 1000, .overlap = Overlap::disjoint});
  run_and_check("ssar_split_allgather", inputs, 1000u * kRanks);
}

TEST(AThousandRanks, of_split_allgather_without_data) {
  SimWorld world({.ranks = kRanks});
  world.run([&](Communicator& communicator) -> Task<> {
    auto request =
        iallreduce(communicator, AnyStream::phantom(ValueType::f32, kDimension, {0, kDimension}, Layout::sparse, 1000),
                   {.algorithm = "ssar_split_allgather"});
    const Outcome outcome = co_await request;
    EXPECT_TRUE(outcome.stream.is_phantom());
    // 1024 sets of 1000 out of 2^24: 993,000 distinct indices are expected; rounding a block's to whole ones costs
    // some.
    EXPECT_NEAR(static_cast<double>(outcome.stream.nnz()), 993000.0, 20000.0);
  });
}

TEST(Phantom, runs_every_row_and_sends_what_real_data_would) {
  constexpr std::uint64_t kSmall = 1u << 16;
  for (const Algorithm* row : rows_on_messages()) {
    SCOPED_TRACE(row->name);
    const auto real = make_inputs(8, {.dimension = kSmall, .nnz = 2000});
    const std::vector<AnyStream> lengths(8,
                                         AnyStream::phantom(ValueType::f32, kSmall, {0, kSmall}, Layout::sparse, 2000));
    const SimRun with_data = run_in_simulation(row->kind, real, {.algorithm = row->name});
    const SimRun without = run_in_simulation(row->kind, lengths, {.algorithm = row->name});
    expect_no_errors(with_data.errors);
    expect_no_errors(without.errors);
    EXPECT_EQ(without.totals.messages, with_data.totals.messages);
    EXPECT_NEAR(static_cast<double>(without.totals.bytes), static_cast<double>(with_data.totals.bytes),
                0.02 * static_cast<double>(with_data.totals.bytes));
    EXPECT_NEAR(without.seconds, with_data.seconds, 0.05 * with_data.seconds);
  }
}

}  // namespace
}  // namespace tulle::testing
