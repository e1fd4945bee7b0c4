#include "cli/simulate_run.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tulle/base/error.hpp"

namespace tulle::cli {
namespace {

class PhantomCourse final : public Course {
 public:
  PhantomCourse(Track& track, const RaceSpec& spec, double density)
      : track_(track), spec_(spec), nnz_(share_of(spec.dimension, density)) {}

  std::uint64_t nnz() const override { return nnz_; }

  Lap run(const RaceRow& row, const CallOptions& options, std::span<AlgorithmState> states) override {
    const auto ranks = static_cast<std::size_t>(track_.ranks());
    if (spec_.takes == Takes::accumulator) {
      const std::vector<Accumulator> inputs(ranks, Accumulator::phantom(spec_.type, spec_.dimension));
      return track_.run(inputs, options, states);
    }
    const bool gets_dense = row.is_dense && spec_.input == RaceInput::matching;
    const AnyStream input = AnyStream::phantom(spec_.type, spec_.dimension, {0, spec_.dimension},
                                               gets_dense ? Layout::dense : Layout::sparse, nnz_);
    return track_.run(std::vector<AnyStream>(ranks, input), options, states);
  }

  std::string fault_of(const Lap&) override { return {}; }

 private:
  Track& track_;
  const RaceSpec& spec_;
  std::uint64_t nnz_;
};

void require_uniform(const RaceSpec& spec) {
  if (spec.takes == Takes::accumulator || spec.overlap == Overlap::uniform) return;
  throw Error(ErrorKind::unsupported,
              fmt::format("phantom streams have sizes of uniform inputs, not of {} ones: allow more --memory, or give "
                          "--data real",
                          to_string(spec.overlap)));
}

}  // namespace

SimData sim_data_from(std::string_view name) {
  if (name == kAuto) return SimData::automatic;
  if (name == "real") return SimData::real;
  if (name == "phantom") return SimData::phantom;
  throw Error(ErrorKind::bad_input, fmt::format("no data is called '{}'; there are auto, real, phantom", name));
}

std::unique_ptr<Course> make_phantom_course(Track& track, const RaceSpec& spec, double density) {
  require_uniform(spec);
  return std::make_unique<PhantomCourse>(track, spec, density);
}

// A rank holds its input, the result, and about as much again in blocks that it has received and reduced. Rows that
// split have a message of every rank for every other one under way.
double real_bytes(const RaceSpec& spec, double density, int ranks, std::string_view algorithm) {
  CostInput input{.ranks = ranks,
                  .dimension = static_cast<double>(spec.dimension),
                  .nnz = density * static_cast<double>(spec.dimension),
                  .value_bytes = static_cast<double>(size_of(spec.type)),
                  .index_bytes = static_cast<double>(index_bytes(spec.dimension))};
  const double dense = input.dimension * input.value_bytes;
  const bool makes_dense = algorithm == kAuto || find_algorithm(OperationKind::allreduce, algorithm).dense_result;
  const bool has_dense_input = spec.takes == Takes::accumulator || wants_dense_input(algorithm);
  const double result = makes_dense ? dense : input.stream_bytes(input.union_of(ranks), input.dimension);
  const double contribution = has_dense_input ? 2 * dense : input.stream_bytes(input.nnz, input.dimension);
  constexpr double kMessageBytes = 700;  // with its buffers in the pool
  return ranks * (contribution + 2 * result) + kMessageBytes * ranks * ranks;
}

Simulation::Simulation(const SimOptions& options, const RaceSpec& spec, double density, const DataRule& rule)
    : track_(options), spec_(spec), real_spec_(spec), density_(density), rule_(rule) {
  std::erase_if(real_spec_.algorithms, [this](std::string_view algorithm) { return is_phantom(algorithm); });
}

bool Simulation::is_phantom(std::string_view algorithm) const {
  if (rule_.data != SimData::automatic) return rule_.data == SimData::phantom;
  return real_bytes(spec_, density_, track_.ranks(), algorithm) > rule_.memory_bytes;
}

Course& Simulation::course_of(bool phantom) {
  std::unique_ptr<Course>& course = phantom ? phantom_ : real_;
  if (course) return *course;
  if (phantom) {
    course = make_phantom_course(track_, spec_, density_);
  } else {
    course = spec_.takes == Takes::accumulator ? make_accumulator_course(track_, real_spec_, density_)
                                               : make_stream_course(track_, real_spec_, density_);
  }
  return *course;
}

SimulatedRow Simulation::run(std::string_view algorithm) {
  SimulatedRow simulated{.is_phantom = is_phantom(algorithm)};
  Course& course = course_of(simulated.is_phantom);
  RaceRow& row = simulated.race;
  row.algorithm = algorithm;
  row.is_dense = wants_dense_input(algorithm);
  row.density = density_;
  row.nnz = course.nnz();
  CallOptions options = options_of(spec_, row);
  if (spec_.takes == Takes::stream) options.density = density_;
  std::vector<AlgorithmState> states(static_cast<std::size_t>(track_.ranks()));
  const Lap lap = course.run(row, options, states);
  row.chosen = lap.outcomes.front().algorithm;
  row.nnz_result = lap.outcomes.front().stream.nnz();
  row.seconds = Quartiles{lap.seconds, lap.seconds, lap.seconds};
  count_lap(row, lap);
  row.failure = course.fault_of(lap);
  row.verified = row.failure.empty() && !simulated.is_phantom;
  simulated.totals = lap.totals;
  return simulated;
}

}  // namespace tulle::cli
