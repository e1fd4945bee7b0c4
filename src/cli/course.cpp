#include "cli/course.hpp"

#include <algorithm>
#include <cmath>

#include "cli/verify.hpp"
#include "tulle/stream/reduce.hpp"

namespace tulle::cli {
namespace {

class StreamCourse final : public Course {
 public:
  StreamCourse(Track& track, const RaceSpec& spec, double density) : track_(track), spec_(spec) {
    SyntheticSpec input{.type = spec.type,
                        .dimension = spec.dimension,
                        .nnz = share_of(spec.dimension, density),
                        .overlap = spec.overlap,
                        .ranks = track.ranks(),
                        .seed = spec.seed};
    for (int local = 0; local < track.local_ranks(); ++local) {
      input.rank = track.first_rank() + local;
      sparse_inputs_.push_back(synthetic_stream(input));
    }
    if (track.leads()) expected_ = serial_reduction(input, spec.op);
    if (spec.input == RaceInput::sparse) return;
    if (!std::any_of(spec.algorithms.begin(), spec.algorithms.end(), wants_dense_input)) return;
    for (const AnyStream& sparse : sparse_inputs_) dense_inputs_.push_back(to_dense(sparse, spec.op));
  }

  std::uint64_t nnz() const override { return sparse_inputs_.front().nnz(); }

  Lap run(const RaceRow& row, const CallOptions& options, std::span<AlgorithmState> states) override {
    const bool gets_dense = row.is_dense && spec_.input == RaceInput::matching;
    return track_.run(gets_dense ? dense_inputs_ : sparse_inputs_, options, states);
  }

  std::string fault_of(const Lap& lap) override {
    if (!track_.leads()) return {};
    const AnyStream& result = lap.outcomes.front().stream;
    if (spec_.value_coding.coding != ValueCoding::raw) {
      return points_the_same_way(result, expected_) ? "" : "is not near the serial sum";
    }
    return means_the_same(result, expected_, spec_.op, track_.ranks()) ? "" : "is not the serial sum";
  }

 private:
  Track& track_;
  const RaceSpec& spec_;
  std::vector<AnyStream> sparse_inputs_;
  std::vector<AnyStream> dense_inputs_;
  AnyStream expected_;  // on the leader alone
};

class AccumulatorCourse final : public Course {
 public:
  AccumulatorCourse(Track& track, const RaceSpec& spec, double density)
      : track_(track), k_(share_of(spec.dimension, density)) {
    SyntheticSpec input{.dimension = spec.dimension,
                        .nnz = spec.dimension,
                        .values = SyntheticValues::gaussian_like,
                        .ranks = track.ranks(),
                        .seed = spec.seed};
    for (int local = 0; local < track.local_ranks(); ++local) {
      input.rank = track.first_rank() + local;
      gradients_.push_back(to_dense(synthetic_stream(input), Op::sum()));
      accumulators_.emplace_back(spec.dimension);
    }
    before_ = sum_of_all(gradients_);
  }

  std::uint64_t nnz() const override { return k_; }

  // As if every step found its residual empty, so that all laps are alike.
  Lap run(const RaceRow&, const CallOptions& options, std::span<AlgorithmState> states) override {
    std::vector<Accumulator> views;
    for (std::size_t local = 0; local < gradients_.size(); ++local) {
      std::ranges::copy(gradients_[local].values_buffer().as<float>(), accumulators_[local].begin());
      views.emplace_back(std::span<float>(accumulators_[local]));
    }
    return track_.run(views, options, states);
  }

  std::string fault_of(const Lap& lap) override {
    std::vector<AnyStream> left;
    for (const std::vector<float>& values : accumulators_) left.push_back(Stream<float>::dense(values));
    const std::vector<float> after = sum_of_all(left);
    const std::vector<float> arrived = Stream<float>(lap.outcomes.front().stream).to_vector();
    for (std::size_t i = 0; i < before_.size(); ++i) {
      const float allowed = 1e-5f * (1 + std::abs(before_[i]) + std::abs(after[i]) + std::abs(arrived[i]));
      if (!(std::abs(arrived[i] + after[i] - before_[i]) <= allowed)) return "loses values";
    }
    return {};
  }

 private:
  std::vector<float> sum_of_all(const std::vector<AnyStream>& streams) {
    std::vector<AlgorithmState> forgotten(streams.size());
    const Lap lap = track_.run(streams, {.algorithm = "dense_split_allgather"}, forgotten);
    return Stream<float>(lap.outcomes.front().stream).to_vector();
  }

  Track& track_;
  std::uint64_t k_;
  std::vector<AnyStream> gradients_;
  std::vector<std::vector<float>> accumulators_;
  std::vector<float> before_;
};

}  // namespace

std::uint64_t share_of(std::uint64_t dimension, double density) {
  return static_cast<std::uint64_t>(std::llround(density * static_cast<double>(dimension)));
}

std::unique_ptr<Course> make_stream_course(Track& track, const RaceSpec& spec, double density) {
  return std::make_unique<StreamCourse>(track, spec, density);
}

std::unique_ptr<Course> make_accumulator_course(Track& track, const RaceSpec& spec, double density) {
  return std::make_unique<AccumulatorCourse>(track, spec, density);
}

}  // namespace tulle::cli
