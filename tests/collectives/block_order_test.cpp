// Allgather of blocks: streams whose ranges cover the dimension one after the other.
#include "collectives/harness.hpp"
#include "collectives/split.hpp"

namespace tulle::testing {
namespace {

constexpr std::uint64_t kDimension = 1000;

// Rank r's block of the vector 1, 2, 3, …, of which every `period`-th value is there. Of several blocks the first is
// empty.
AnyStream block_of_rank(int rank, int ranks, std::uint64_t period, Layout layout) {
  const auto border = [&](int index) {
    return index == 1 ? 0 : kDimension * static_cast<unsigned>(index) / static_cast<unsigned>(ranks);
  };
  const Range range{border(rank), rank + 1 == ranks ? kDimension : border(rank + 1)};
  std::vector<std::uint32_t> indices;
  std::vector<float> values;
  for (std::uint64_t i = range.begin; i < range.end; ++i) {
    const bool is_there = i % period == 0;
    if (layout == Layout::sparse && !is_there) continue;
    indices.push_back(static_cast<std::uint32_t>(i));
    values.push_back(is_there ? static_cast<float>(i + 1) : 0);
  }
  Buffer value_buffer = Buffer::copy_of(std::as_bytes(std::span(values)));
  if (layout == Layout::dense) return AnyStream::dense(ValueType::f32, kDimension, range, value_buffer);
  return AnyStream::sparse(ValueType::f32, kDimension, range, Buffer::copy_of(std::as_bytes(std::span(indices))),
                           value_buffer);
}

std::vector<AnyStream> blocks_of(int ranks, std::uint64_t period, Layout layout) {
  std::vector<AnyStream> blocks;
  for (int rank = 0; rank < ranks; ++rank) blocks.push_back(block_of_rank(rank, ranks, period, layout));
  return blocks;
}

TEST(Blocks, are_joined_by_every_allgather) {
  for (const Algorithm* row : rows_of(OperationKind::allgather)) {
    for (const int ranks : {1, 2, 3, 5, 8}) {
      for (const Layout layout : {Layout::sparse, Layout::dense}) {
        const SimRun run =
            run_in_simulation(OperationKind::allgather, blocks_of(ranks, 7, layout), {.algorithm = row->name});
        expect_no_errors(run.errors);
        for (const Outcome& outcome : run.outcomes) {
          const std::vector<float> whole = Stream<float>(outcome.stream).to_vector();
          ASSERT_EQ(whole.size(), kDimension);
          for (std::uint64_t i = 0; i < kDimension; ++i)
            ASSERT_EQ(whole[i], i % 7 == 0 ? static_cast<float>(i + 1) : 0);
        }
      }
    }
  }
}

TEST(Blocks, travel_once_through_each_port) {
  for (const int ranks : {2, 5, 8}) {
    const SimRun run = run_in_simulation(OperationKind::allgather, blocks_of(ranks, 7, Layout::sparse),
                                         {.algorithm = "dense_allgather"});
    for (int rank = 0; rank < ranks; ++rank) {
      const Outcome& outcome = run.outcomes[static_cast<std::size_t>(rank)];
      const std::uint64_t own = block_of_rank(rank, ranks, 7, Layout::dense).nnz();
      EXPECT_EQ(outcome.counts.data_bytes_received, (kDimension - own) * sizeof(float));
      EXPECT_TRUE(outcome.stream.is_dense());
    }
  }
}

TEST(Blocks, that_leave_a_gap_are_told_to_all) {
  for (const Algorithm* row : rows_of(OperationKind::allgather)) {
    auto blocks = blocks_of(4, 7, Layout::sparse);
    blocks[2] = slice(blocks[2], {blocks[2].range().begin + 10, blocks[2].range().end});
    const SimRun run = run_in_simulation(OperationKind::allgather, blocks, {.algorithm = row->name});
    for (const std::exception_ptr& error : run.errors) {
      EXPECT_NE(message_of(error).find("rank 2 gives [510, 750)"), std::string::npos) << message_of(error);
    }
  }
}

TEST(Blocks, are_refused_by_other_kinds) {
  const SimRun run = run_in_simulation(OperationKind::allreduce, blocks_of(2, 7, Layout::sparse));
  for (const std::exception_ptr& error : run.errors) EXPECT_TRUE(error);
}

}  // namespace
}  // namespace tulle::testing
