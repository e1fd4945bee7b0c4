#include "measure/workload.hpp"

#include <algorithm>
#include <cmath>
#include <map>

#include "measure/random_values.hpp"
#include "measure/verify.hpp"
#include "select/share.hpp"
#include "tulle/base/philox.hpp"
#include "tulle/stream/reduction.hpp"

namespace tulle::measure {
namespace {

class StreamWorkload final : public Workload {
 public:
  StreamWorkload(LocalRanks& ranks, const ComparisonSpec& spec, double density) : ranks_(ranks), spec_(spec) {
    SyntheticSpec input{.type = spec.type,
                        .dimension = spec.dimension,
                        .nnz = share_of(spec.dimension, density),
                        .overlap = spec.overlap,
                        .ranks = ranks.world_size(),
                        .seed = spec.seed};
    for (int local = 0; local < ranks.count(); ++local) {
      input.rank = ranks.first() + local;
      sparse_inputs_.push_back(synthetic_stream(input));
    }
    make_expected(input);
    if (spec.input == InputForm::sparse) return;
    if (!std::any_of(spec.algorithms.begin(), spec.algorithms.end(), wants_dense_input)) return;
    for (const AnyStream& sparse : sparse_inputs_) dense_inputs_.push_back(to_dense(sparse, spec.op));
  }

  std::uint64_t nnz() const override { return sparse_inputs_.front().nnz(); }

  TimedCall run(const Row& row, const CallOptions& options, std::span<AlgorithmState> states) override {
    const bool gets_dense = row.is_dense && spec_.input == InputForm::matching;
    return ranks_.run(gets_dense ? dense_inputs_ : sparse_inputs_, options, states);
  }

  std::string fault_of(const TimedCall& call) override {
    if (!ranks_.leads()) return {};
    const AnyStream& result = call.outcomes.front().stream;
    if (spec_.value_coding.coding != ValueCoding::raw) {
      return points_the_same_way(result, expected_) ? "" : "is not near the serial sum";
    }
    return means_the_same(result, expected_, spec_.op, ranks_.world_size()) ? "" : "is not the serial sum";
  }

 private:
  // The others wait for the leader, who alone makes the serial sum. They meet after each summand, so that nobody waits
  // longer than for one of them, whatever the number of ranks: a deadline that is right for calls will do.
  void make_expected(SyntheticSpec input) {
    SerialReduction serial(input, spec_.op);
    for (int rank = 0; rank < input.ranks; ++rank) {
      if (ranks_.leads()) serial.add(rank);
      ranks_.meet();
    }
    if (ranks_.leads()) expected_ = serial.result();
  }

  LocalRanks& ranks_;
  const ComparisonSpec& spec_;
  std::vector<AnyStream> sparse_inputs_;
  std::vector<AnyStream> dense_inputs_;
  AnyStream expected_;  // on the leader alone
};

// Gradients of a training step.
class Gradients {
 public:
  Gradients(const LocalRanks& ranks, const ComparisonSpec& spec) : ranks_(ranks), spec_(spec) {}

  /// Of one local rank in a step, drawn when another step is asked for than before.
  std::span<const float> of(int local, std::uint64_t step) {
    if (drawn_.empty() || step != step_) draw(step);
    return drawn_[static_cast<std::size_t>(local)];
  }

 private:
  void draw(std::uint64_t step) {
    step_ = step;
    drawn_.clear();
    const std::vector<float> common = random_values(spec_.dimension, Distribution::gaussian, seed_of(step, 0));
    for (int local = 0; local < ranks_.count(); ++local) {
      const auto rank = static_cast<std::uint64_t>(ranks_.first() + local);
      drawn_.push_back(random_gradient(common, seed_of(step, 1 + rank)));
    }
  }
  std::uint64_t seed_of(std::uint64_t step, std::uint64_t who) const { return Philox(spec_.seed, step).at(who); }

  const LocalRanks& ranks_;
  const ComparisonSpec& spec_;
  std::uint64_t step_ = 0;
  std::vector<std::vector<float>> drawn_;  // by local rank
};

// Each row trains: it has accumulators of its own, and its n-th call finds what its earlier ones left plus the n-th
// gradient. Rows that use again what earlier calls found would look too good on one gradient.
class AccumulatorWorkload final : public Workload {
 public:
  AccumulatorWorkload(LocalRanks& ranks, const ComparisonSpec& spec, double density)
      : ranks_(ranks), spec_(spec), k_(share_of(spec.dimension, density)), gradients_(ranks, spec) {}

  std::uint64_t nnz() const override { return k_; }

  TimedCall run(const Row& row, const CallOptions& options, std::span<AlgorithmState> states) override {
    Training& training = trainings_[row.algorithm];
    training.accumulators.resize(static_cast<std::size_t>(ranks_.count()));
    std::vector<Accumulator> views;
    for (int local = 0; local < ranks_.count(); ++local) {
      std::vector<float>& values = training.accumulators[static_cast<std::size_t>(local)];
      values.resize(spec_.dimension);
      const std::span<const float> gradient = gradients_.of(local, training.calls);
      std::ranges::transform(values, gradient, values.begin(), std::plus<float>());
      views.emplace_back(std::span<float>(values));
    }
    before_ = training.accumulators;
    last_ = &training;
    CallOptions with_step = options;
    with_step.step = training.calls++;
    return ranks_.run(views, with_step, states);
  }

  std::string fault_of(const TimedCall& call) override {
    const std::vector<float> before = sum_of_all(before_), after = sum_of_all(last_->accumulators);
    const std::vector<float> arrived = Stream<float>(call.outcomes.front().stream).to_vector();
    for (std::size_t i = 0; i < before.size(); ++i) {
      const float allowed = 1e-5f * (1 + std::abs(before[i]) + std::abs(after[i]) + std::abs(arrived[i]));
      if (!(std::abs(arrived[i] + after[i] - before[i]) <= allowed)) return "loses values";
    }
    return {};
  }

  void end(const Row& row) override { trainings_.erase(row.algorithm); }

 private:
  struct Training {
    std::vector<std::vector<float>> accumulators;  // by local rank
    std::uint64_t calls = 0;
  };

  std::vector<float> sum_of_all(const std::vector<std::vector<float>>& vectors) {
    std::vector<AnyStream> streams;
    for (const std::vector<float>& values : vectors) streams.push_back(Stream<float>::dense(values));
    std::vector<AlgorithmState> forgotten(streams.size());
    const TimedCall call = ranks_.run(streams, {.algorithm = "dense_split_allgather"}, forgotten);
    return Stream<float>(call.outcomes.front().stream).to_vector();
  }

  LocalRanks& ranks_;
  const ComparisonSpec& spec_;
  std::uint64_t k_;
  Gradients gradients_;
  std::map<std::string_view, Training> trainings_;  // by algorithm
  std::vector<std::vector<float>> before_;          // the last call's accumulators, by local rank
  const Training* last_ = nullptr;
};

}  // namespace

std::uint64_t share_of(std::uint64_t dimension, double density) { return values_of_share(density, dimension); }

std::unique_ptr<Workload> make_stream_workload(LocalRanks& ranks, const ComparisonSpec& spec, double density) {
  return std::make_unique<StreamWorkload>(ranks, spec, density);
}

std::unique_ptr<Workload> make_accumulator_workload(LocalRanks& ranks, const ComparisonSpec& spec, double density) {
  return std::make_unique<AccumulatorWorkload>(ranks, spec, density);
}

}  // namespace tulle::measure
