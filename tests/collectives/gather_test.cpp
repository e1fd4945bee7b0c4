// Large blocks go around the ring, small ones by Bruck's rounds, and both at once; and nodes in two_level.
#include <bit>

#include "collectives/harness.hpp"

namespace tulle::testing {
namespace {

// Latency so small that every block is worth a message of its own.
SimOptions large_blocks() { return {.profile = {.alpha_seconds = 1e-9, .beta_seconds_per_byte = 1e-6}}; }

class GatherOnRanks : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Simulated, GatherOnRanks, ::testing::Values(1, 2, 3, 4, 5, 7, 8, 9, 16, 17),
                         [](const auto& info) { return "P" + std::to_string(info.param); });

TEST_P(GatherOnRanks, every_row_sums_exactly_with_large_blocks) {
  for (const Algorithm& row : registry()) {
    if (row.takes != Takes::stream || row.needs != Needs::messages) continue;
    for (const std::uint64_t nnz : {20u, 300u, 900u}) {
      const auto inputs = make_inputs(GetParam(), {.type = ValueType::i32, .dimension = 1000, .nnz = nnz});
      SimOptions sim = large_blocks();
      sim.faults.max_delay_seconds = 1e-3;
      const SimRun run = run_in_simulation(row.kind, inputs, {.algorithm = row.name}, sim);
      expect_no_errors(run.errors);
      expect_correct<std::int32_t>(row.kind, inputs, run.outcomes, {});
    }
  }
}

TEST_P(GatherOnRanks, large_and_small_blocks_travel_together) {
  const int ranks = GetParam();
  std::vector<AnyStream> inputs;  // all non-zeros in the first third, so that other owners have nothing
  for (int rank = 0; rank < ranks; ++rank) {
    std::vector<std::uint32_t> indices;
    std::vector<std::int32_t> values;
    for (std::uint32_t i = 0; i < 333; i += 1 + static_cast<std::uint32_t>(rank) % 3) {
      indices.push_back(i);
      values.push_back(rank + 1);
    }
    inputs.push_back(Stream<std::int32_t>::from_sorted<std::uint32_t>(1000, indices, values));
  }
  const SimOptions sim{.profile = {.alpha_seconds = 1e-6, .beta_seconds_per_byte = 1e-6}};
  const SimRun run = run_in_simulation(OperationKind::allreduce, inputs, {.algorithm = "ssar_split_allgather"}, sim);
  expect_no_errors(run.errors);
  expect_correct<std::int32_t>(OperationKind::allreduce, inputs, run.outcomes, {});
}

TEST_P(GatherOnRanks, a_large_block_passes_each_port_once) {
  const int ranks = GetParam();
  const auto inputs = make_inputs(ranks, {.dimension = 1u << 16, .nnz = 240, .overlap = Overlap::disjoint});
  const CallOptions options{.algorithm = "ssar_split_allgather", .index_coding = "raw"};
  const SimRun small = run_in_simulation(OperationKind::allreduce, inputs, options);
  const SimRun large = run_in_simulation(OperationKind::allreduce, inputs, options, large_blocks());
  for (std::size_t rank = 0; rank < inputs.size(); ++rank) {
    EXPECT_EQ(large.outcomes[rank].counts.data_bytes_received, small.outcomes[rank].counts.data_bytes_received);
    EXPECT_TRUE(large.outcomes[rank].stream == small.outcomes[rank].stream);
  }
  const auto rounds = static_cast<std::uint32_t>(std::bit_width(static_cast<unsigned>(ranks - 1)));
  EXPECT_EQ(large.outcomes[0].counts.depth, ranks == 1 ? 0u : 1 + rounds + static_cast<std::uint32_t>(ranks - 2));
}

// Without a checksum flipped values go unnoticed; lengths, indices and heads do not, and nothing is written elsewhere.
TEST(GatherOfLargeBlocks, survives_what_it_is_sent) {
  std::uint64_t failures = 0;
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    const int ranks = 2 + static_cast<int>(seed % 7);
    const auto inputs = make_inputs(ranks, {.dimension = 1000, .nnz = 20 + 3 * seed, .seed = seed});
    for (const std::string_view row : {"ssar_split_allgather", "dsar_split_allgather", "two_level"}) {
      SimOptions sim = large_blocks();
      sim.seed = seed;
      sim.faults = {.truncate = seed % 2 == 0 ? 0.05 : 0, .corrupt = seed % 2 == 1 ? 0.05 : 0};
      const CallOptions options{.algorithm = row, .index_coding = kSmallest, .deadline_seconds = 0.5};
      const SimRun run = run_in_simulation(OperationKind::allreduce, inputs, options, sim);
      for (std::size_t rank = 0; rank < inputs.size(); ++rank) {
        if (!run.errors[rank]) {
          run.outcomes[rank].stream.validate();
          continue;
        }
        failures += 1;
        EXPECT_THROW(std::rethrow_exception(run.errors[rank]), Error) << row << ", seed " << seed;
      }
    }
  }
  EXPECT_GT(failures, 100u);
}

std::vector<int> nodes_of(int ranks, int per_node, bool interleaved) {
  std::vector<int> nodes;
  const int count = (ranks + per_node - 1) / per_node;
  for (int rank = 0; rank < ranks; ++rank) nodes.push_back(interleaved ? rank % count : rank / per_node);
  return nodes;
}

SimRun run_two_level(const std::vector<AnyStream>& inputs, const std::vector<int>& nodes) {
  SimRun run;
  run.outcomes.resize(inputs.size());
  SimWorld world({.ranks = static_cast<int>(inputs.size())});
  const Program program = [&](Communicator& communicator) -> Task<> {
    const auto rank = static_cast<std::size_t>(communicator.rank());
    communicator.set_nodes(nodes);
    auto request = start_collective(OperationKind::allreduce, communicator, inputs[rank], {.algorithm = "two_level"});
    run.outcomes[rank] = co_await request;
  };
  run.errors = world.try_run(program);
  return run;
}

TEST_P(GatherOnRanks, two_level_sums_exactly_whatever_the_nodes) {
  const int ranks = GetParam();
  const auto inputs = make_inputs(ranks, {.type = ValueType::i64, .dimension = 500, .nnz = 60});
  for (const int per_node : {1, 2, 3, 8}) {
    for (const bool interleaved : {false, true}) {
      const SimRun run = run_two_level(inputs, nodes_of(ranks, per_node, interleaved));
      expect_no_errors(run.errors);
      expect_correct<std::int64_t>(OperationKind::allreduce, inputs, run.outcomes, {});
    }
  }
}

// Eight ranks on two nodes that bring the same indices: a node's port sees them once, not four times.
TEST(TwoLevel, only_leaders_talk_between_nodes) {
  const auto inputs = make_inputs(8, {.dimension = 1u << 16, .nnz = 1000, .overlap = Overlap::identical});
  const SimRun run = run_two_level(inputs, nodes_of(8, 4, false));
  expect_no_errors(run.errors);
  for (const std::size_t follower : {1u, 2u, 3u, 5u, 6u, 7u}) {
    EXPECT_EQ(run.outcomes[follower].counts.messages_sent, 1u);
  }
  const std::uint64_t whole = run.outcomes[1].counts.data_bytes_sent;  // up: the whole stream
  const Counts& leader = run.outcomes[0].counts;
  EXPECT_NEAR(static_cast<double>(leader.data_bytes_sent), static_cast<double>(3 * whole + whole),
              0.1 * static_cast<double>(whole));
}

TEST(TwoLevel, nodes_set_by_hand_must_fit) {
  SimWorld world({.ranks = 3});
  const std::vector<int> two = {0, 1};
  EXPECT_THROW(world.communicator(0).set_nodes(two), Error);
}

}  // namespace
}  // namespace tulle::testing
