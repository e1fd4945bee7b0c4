#include "measure/workload.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

namespace tulle::measure {
namespace {

// A simulation that keeps what accumulators held before each call and after it.
class RecordingRanks final : public LocalRanks {
 public:
  struct Call {
    std::vector<std::vector<float>> before, after;
  };
  std::vector<Call> calls;

  std::string_view transport() const override { return "sim"; }
  int world_size() const override { return 2; }
  int first() const override { return 0; }
  int count() const override { return 2; }
  std::vector<double> agree(std::vector<double> values, const Op&) override { return values; }
  TimedCall run(std::span<const Accumulator> inputs, const CallOptions& options,
                std::span<AlgorithmState> states) override {
    Call recorded{copies(inputs), {}};
    TimedCall call = honest_.run(inputs, options, states);
    recorded.after = copies(inputs);
    calls.push_back(std::move(recorded));
    return call;
  }
  TimedCall run(std::span<const AnyStream> inputs, const CallOptions& options,
                std::span<AlgorithmState> states) override {
    return honest_.run(inputs, options, states);
  }

 private:
  static std::vector<std::vector<float>> copies(std::span<const Accumulator> inputs) {
    std::vector<std::vector<float>> all;
    for (const Accumulator& input : inputs) {
      const std::span<const float> values = input.values<float>();
      all.emplace_back(values.begin(), values.end());
    }
    return all;
  }

  SimulatedRanks honest_{{.ranks = 2}};
};

double correlation(const std::vector<float>& a, const std::vector<float>& b) {
  const auto dot = [](const auto& x, const auto& y) { return std::inner_product(x.begin(), x.end(), y.begin(), 0.0); };
  return dot(a, b) / std::sqrt(dot(a, a) * dot(b, b));
}

std::vector<float> difference(std::vector<float> a, const std::vector<float>& b) {
  for (std::size_t i = 0; i < a.size(); ++i) a[i] -= b[i];
  return a;
}

TEST(AccumulatorWorkload, AddsANewGradientInEveryCallToWhatTheOnesBeforeLeft) {
  const ComparisonSpec spec{.dimension = 20000, .algorithms = {"spardl", "topka"}, .takes = Takes::accumulator};
  RecordingRanks ranks;
  const auto workload = make_accumulator_workload(ranks, spec, 0.01);
  std::vector<AlgorithmState> states(2);
  Row spardl{.algorithm = "spardl"}, topka{.algorithm = "topka"};
  spardl.nnz = topka.nnz = workload->nnz();
  for (const Row* row : {&spardl, &topka, &spardl}) {
    const TimedCall call = workload->run(*row, options_of(spec, *row), states);
    EXPECT_EQ(workload->fault_of(call), "");
  }
  const auto& first = ranks.calls[0].before[0];
  EXPECT_EQ(ranks.calls[1].before, ranks.calls[0].before) << "rows get the same gradients";
  EXPECT_NE(ranks.calls[0].after, ranks.calls[0].before);
  const std::vector<float> second = difference(ranks.calls[2].before[0], ranks.calls[0].after[0]);
  EXPECT_LT(std::abs(correlation(first, second)), 0.1) << "another gradient in the second call";
  // Shared between ranks in part, and heavy-tailed: of a Gaussian the largest of 20,000 is about four deviations.
  EXPECT_GT(correlation(first, ranks.calls[0].before[1]), 0.2);
  EXPECT_LT(correlation(first, ranks.calls[0].before[1]), 0.8);
  const double deviation = std::sqrt(std::inner_product(first.begin(), first.end(), first.begin(), 0.0) / 20000);
  EXPECT_GT(*std::ranges::max_element(first), 8 * deviation);
}

TEST(AccumulatorWorkload, ForgetsARowThatHasEnded) {
  const ComparisonSpec spec{.dimension = 500, .algorithms = {"spardl"}, .takes = Takes::accumulator};
  RecordingRanks ranks;
  const auto workload = make_accumulator_workload(ranks, spec, 0.1);
  std::vector<AlgorithmState> states(2);
  const Row row{.algorithm = "spardl", .nnz = workload->nnz()};
  workload->run(row, options_of(spec, row), states);
  workload->end(row);
  workload->run(row, options_of(spec, row), states);
  EXPECT_EQ(ranks.calls[1].before, ranks.calls[0].before);
}

}  // namespace
}  // namespace tulle::measure
