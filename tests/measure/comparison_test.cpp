#include "measure/comparison.hpp"

#include <gtest/gtest.h>

#include "tulle/stream/reduction.hpp"

namespace tulle::measure {
namespace {

ComparisonSpec small_comparison() {
  return {.dimension = 1000, .algorithms = {kAuto, "ssar_split_allgather", "dense_ring"}, .repeats = 3};
}

// A simulation that lies about its results.
class LyingRanks final : public LocalRanks {
 public:
  enum class Lie { wrong_everywhere, wrong_on_the_last_rank };
  explicit LyingRanks(Lie lie) : lie_(lie), honest_({.ranks = 3}) {}

  std::string_view transport() const override { return "sim"; }
  int world_size() const override { return 3; }
  int first() const override { return 0; }
  int count() const override { return 3; }
  std::vector<double> agree(std::vector<double> values, const Op&) override { return values; }
  TimedCall run(std::span<const Accumulator> inputs, const CallOptions& options,
                std::span<AlgorithmState> states) override {
    TimedCall call = honest_.run(inputs, options, states);
    inputs.back().values<float>()[7] += 1;
    return call;
  }
  TimedCall run(std::span<const AnyStream> inputs, const CallOptions& options,
                std::span<AlgorithmState> states) override {
    TimedCall call = honest_.run(inputs, options, states);
    const float one = 1;
    const std::uint32_t index = 7;
    const AnyStream lie = Stream<float>::from_sorted<std::uint32_t>(1000, {&index, 1}, {&one, 1});
    if (lie_ != Lie::wrong_everywhere) {
      call.outcomes.back().stream = reduce(call.outcomes.back().stream, lie, Op::sum());
      return call;
    }
    for (Outcome& outcome : call.outcomes) outcome.stream = reduce(outcome.stream, lie, Op::sum());
    return call;
  }

 private:
  Lie lie_;
  SimulatedRanks honest_;
};

TEST(Comparison, EveryCandidateIsVerifiedAndTimed) {
  SimulatedRanks ranks({.ranks = 3});
  const std::vector<Row> rows = compare(ranks, small_comparison(), 0.01);
  ASSERT_EQ(rows.size(), 3u);
  for (const Row& row : rows) {
    EXPECT_TRUE(row.verified) << row.algorithm << " " << row.failure;
    EXPECT_EQ(row.nnz, 10u);
    ASSERT_TRUE(row.seconds);
    EXPECT_GT(row.seconds->median, 0);
    EXPECT_GT(*row.bytes_sent_max, 0u);
    EXPECT_LE(*row.bytes_sent_max, *row.bytes_sent_total);
  }
  EXPECT_NE(rows[0].chosen, kAuto);
  EXPECT_FALSE(rows[1].is_dense);
  EXPECT_TRUE(rows[2].is_dense);
}

TEST(Comparison, AWrongSumFails) {
  LyingRanks ranks(LyingRanks::Lie::wrong_everywhere);
  for (const Row& row : compare(ranks, small_comparison(), 0.01)) {
    EXPECT_FALSE(row.verified) << row.algorithm;
    EXPECT_EQ(row.failure, "is not the serial sum");
    EXPECT_FALSE(row.seconds);
  }
}

ComparisonSpec small_selecting_comparison() {
  ComparisonSpec spec = small_comparison();
  spec.algorithms = {kAuto, "spardl", "topka", "topkdsa", "gtopk", "oktopk"};
  spec.takes = Takes::accumulator;
  return spec;
}

TEST(Comparison, RowsThatSelectAreVerifiedAndTimedToo) {
  SimulatedRanks ranks({.ranks = 4});
  for (const int teams : {1, 2}) {
    ComparisonSpec spec = small_selecting_comparison();
    spec.teams = teams;
    for (const Row& row : compare(ranks, spec, 0.05)) {
      EXPECT_TRUE(row.verified) << row.algorithm << " " << row.failure;
      EXPECT_EQ(row.nnz, 50u);
      EXPECT_GT(row.select_seconds, 0);
      EXPECT_LT(row.select_seconds, row.seconds->median);
      EXPECT_GT(row.depth, 0u);
      EXPECT_GT(row.data_bytes_max, 0u);
    }
  }
}

TEST(Comparison, ARowThatLosesValuesFails) {
  LyingRanks ranks(LyingRanks::Lie::wrong_everywhere);
  ComparisonSpec spec = small_selecting_comparison();
  for (const Row& row : compare(ranks, spec, 0.05)) {
    EXPECT_FALSE(row.verified) << row.algorithm;
    EXPECT_EQ(row.failure, "loses values");
  }
}

TEST(Comparison, CodedValuesNeedOnlyPointTheSameWay) {
  SimulatedRanks ranks({.ranks = 4});
  ComparisonSpec spec = small_comparison();
  spec.dimension = 20000;
  spec.algorithms = {"dsar_split_allgather", "dense_split_allgather"};
  spec.value_coding = parse_value_codec("qsgd:bits=4");
  for (const Row& row : compare(ranks, spec, 0.1)) EXPECT_TRUE(row.verified) << row.algorithm << " " << row.failure;
}

TEST(Comparison, OneRankThatDiffersFails) {
  LyingRanks ranks(LyingRanks::Lie::wrong_on_the_last_rank);
  for (const Row& row : compare(ranks, small_comparison(), 0.01)) {
    EXPECT_FALSE(row.verified) << row.algorithm;
    EXPECT_EQ(row.failure, "ranks differ");
  }
}

TEST(Comparison, EveryTypeOperationAndOverlapIsVerified) {
  SimulatedRanks ranks({.ranks = 5});
  for (const ValueType type : kAllValueTypes) {
    for (const char* op : {"sum", "prod", "min", "max", "bit_and", "bit_or", "bit_xor"}) {
      if (std::string_view(op).starts_with("bit") && !is_integer(type)) continue;
      for (const Overlap overlap : {Overlap::uniform, Overlap::identical, Overlap::disjoint, Overlap::zipf}) {
        ComparisonSpec spec = small_comparison();
        spec.type = type, spec.op = op_from(op), spec.overlap = overlap, spec.repeats = 1, spec.warmup = 1;
        for (const Row& row : compare(ranks, spec, 0.05)) {
          EXPECT_TRUE(row.verified) << row.algorithm << " " << to_string(type) << " " << op << " "
                                    << to_string(overlap);
        }
      }
    }
  }
}

}  // namespace
}  // namespace tulle::measure
