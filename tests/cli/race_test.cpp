#include "cli/race.hpp"

#include <gtest/gtest.h>

#include "cli/bench_report.hpp"
#include "tulle/stream/reduce.hpp"

namespace tulle::cli {
namespace {

RaceSpec small_race() {
  return {.dimension = 1000, .algorithms = {kAuto, "ssar_split_allgather", "dense_ring"}, .repeats = 3};
}

// A simulation that lies about its results.
class LyingTrack final : public Track {
 public:
  enum class Lie { wrong_everywhere, wrong_on_the_last_rank };
  explicit LyingTrack(Lie lie) : lie_(lie), honest_({.ranks = 3}) {}

  std::string_view transport() const override { return "sim"; }
  int ranks() const override { return 3; }
  int first_rank() const override { return 0; }
  int local_ranks() const override { return 3; }
  std::vector<double> agree(std::vector<double> values, const Op&) override { return values; }
  Lap run(std::span<const Accumulator> inputs, const CallOptions& options, std::span<AlgorithmState> states) override {
    Lap lap = honest_.run(inputs, options, states);
    inputs.back().values<float>()[7] += 1;
    return lap;
  }
  Lap run(std::span<const AnyStream> inputs, const CallOptions& options, std::span<AlgorithmState> states) override {
    Lap lap = honest_.run(inputs, options, states);
    const float one = 1;
    const std::uint32_t index = 7;
    const AnyStream lie = Stream<float>::from_sorted<std::uint32_t>(1000, {&index, 1}, {&one, 1});
    if (lie_ != Lie::wrong_everywhere) {
      lap.outcomes.back().stream = reduce(lap.outcomes.back().stream, lie, Op::sum());
      return lap;
    }
    for (Outcome& outcome : lap.outcomes) outcome.stream = reduce(outcome.stream, lie, Op::sum());
    return lap;
  }

 private:
  Lie lie_;
  SimTrack honest_;
};

TEST(Race, EveryContenderIsVerifiedAndTimed) {
  SimTrack track({.ranks = 3});
  const std::vector<RaceRow> rows = race(track, small_race(), 0.01);
  ASSERT_EQ(rows.size(), 3u);
  for (const RaceRow& row : rows) {
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

TEST(Race, AWrongSumFails) {
  LyingTrack track(LyingTrack::Lie::wrong_everywhere);
  for (const RaceRow& row : race(track, small_race(), 0.01)) {
    EXPECT_FALSE(row.verified) << row.algorithm;
    EXPECT_EQ(row.failure, "is not the serial sum");
    EXPECT_FALSE(row.seconds);
  }
}

RaceSpec small_selecting_race() {
  RaceSpec spec = small_race();
  spec.algorithms = {kAuto, "spardl", "topka", "topkdsa", "gtopk", "oktopk"};
  spec.takes = Takes::accumulator;
  return spec;
}

TEST(Race, RowsThatSelectAreVerifiedAndTimedToo) {
  SimTrack track({.ranks = 4});
  for (const int teams : {1, 2}) {
    RaceSpec spec = small_selecting_race();
    spec.teams = teams;
    for (const RaceRow& row : race(track, spec, 0.05)) {
      EXPECT_TRUE(row.verified) << row.algorithm << " " << row.failure;
      EXPECT_EQ(row.nnz, 50u);
      EXPECT_GT(row.select_seconds, 0);
      EXPECT_LT(row.select_seconds, row.seconds->median);
      EXPECT_GT(row.depth, 0u);
      EXPECT_GT(row.data_bytes_max, 0u);
    }
  }
}

TEST(Race, ARowThatLosesValuesFails) {
  LyingTrack track(LyingTrack::Lie::wrong_everywhere);
  RaceSpec spec = small_selecting_race();
  for (const RaceRow& row : race(track, spec, 0.05)) {
    EXPECT_FALSE(row.verified) << row.algorithm;
    EXPECT_EQ(row.failure, "loses values");
  }
}

TEST(Race, CodedValuesNeedOnlyPointTheSameWay) {
  SimTrack track({.ranks = 4});
  RaceSpec spec = small_race();
  spec.dimension = 20000;
  spec.algorithms = {"dsar_split_allgather", "dense_split_allgather"};
  spec.value_coding = parse_value_codec("qsgd:bits=4");
  for (const RaceRow& row : race(track, spec, 0.1)) EXPECT_TRUE(row.verified) << row.algorithm << " " << row.failure;
}

TEST(Race, OneRankThatDiffersFails) {
  LyingTrack track(LyingTrack::Lie::wrong_on_the_last_rank);
  for (const RaceRow& row : race(track, small_race(), 0.01)) {
    EXPECT_FALSE(row.verified) << row.algorithm;
    EXPECT_EQ(row.failure, "ranks differ");
  }
}

TEST(Race, AFailedRowIsShownAndStored) {
  LyingTrack track(LyingTrack::Lie::wrong_everywhere);
  const std::vector<RaceRow> rows = race(track, small_race(), 0.01);
  const BenchRun run{.spec = small_race(), .transport = "sim", .ranks = 3};
  EXPECT_NE(BenchTable(run).rows(rows).find("FAILED: is not the serial sum"), std::string::npos);
  EXPECT_NE(bench_json(run, rows[0]).find(R"("seconds_median":null)"), std::string::npos);
  EXPECT_NE(bench_json(run, rows[0]).find(R"("verified":false)"), std::string::npos);
}

TEST(Race, EveryTypeOperationAndOverlapIsVerified) {
  SimTrack track({.ranks = 5});
  for (const ValueType type : kAllValueTypes) {
    for (const char* op : {"sum", "prod", "min", "max", "bit_and", "bit_or", "bit_xor"}) {
      if (std::string_view(op).starts_with("bit") && !is_integer(type)) continue;
      for (const Overlap overlap : {Overlap::uniform, Overlap::identical, Overlap::disjoint, Overlap::zipf}) {
        RaceSpec spec = small_race();
        spec.type = type, spec.op = op_from(op), spec.overlap = overlap, spec.repeats = 1, spec.warmup = 1;
        for (const RaceRow& row : race(track, spec, 0.05)) {
          EXPECT_TRUE(row.verified) << row.algorithm << " " << to_string(type) << " " << op << " "
                                    << to_string(overlap);
        }
      }
    }
  }
}

TEST(Race, QuartilesLieBetweenTheSamples) {
  const Quartiles five = quartiles({5, 1, 4, 2, 3});
  EXPECT_EQ(five.q1, 2);
  EXPECT_EQ(five.median, 3);
  EXPECT_EQ(five.q3, 4);
  EXPECT_EQ(quartiles({1, 2}).median, 1.5);
  EXPECT_EQ(quartiles({7}).q3, 7);
}

TEST(Race, SpeedUpsAreMeasuredAgainstMpiOrElseTheFastestDenseRow) {
  RaceRow slow{.algorithm = "dense_ring", .is_dense = true, .seconds = Quartiles{2, 2, 2}};
  RaceRow fast{.algorithm = "dense_rabenseifner", .is_dense = true, .seconds = Quartiles{1, 1, 1}};
  RaceRow sparse{.algorithm = "ssar_split_allgather", .seconds = Quartiles{0.1, 0.1, 0.1}};
  RaceRow mpi{.algorithm = "mpi_native", .is_dense = true, .seconds = Quartiles{3, 3, 3}};
  EXPECT_EQ(reference_of(std::vector{sparse}), nullptr);
  const std::vector dense = {sparse, slow, fast}, with_mpi = {sparse, slow, fast, mpi};
  EXPECT_EQ(reference_of(dense), &dense[2]);
  EXPECT_EQ(reference_of(with_mpi), &with_mpi[3]);
}

}  // namespace
}  // namespace tulle::cli
