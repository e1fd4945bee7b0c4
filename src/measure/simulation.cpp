#include "measure/simulation.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>

#include "tulle/base/error.hpp"

namespace tulle::measure {
namespace {

class PhantomWorkload final : public Workload {
 public:
  PhantomWorkload(LocalRanks& ranks, const ComparisonSpec& spec, double density)
      : ranks_(ranks), spec_(spec), nnz_(share_of(spec.dimension, density)) {}

  std::uint64_t nnz() const override { return nnz_; }

  TimedCall run(const Row& row, const CallOptions& options, std::span<AlgorithmState> states) override {
    const auto ranks = static_cast<std::size_t>(ranks_.world_size());
    if (spec_.takes == Takes::accumulator) {
      const std::vector<Accumulator> inputs(ranks, Accumulator::phantom(spec_.type, spec_.dimension));
      return ranks_.run(inputs, options, states);
    }
    const bool gets_dense = row.is_dense && spec_.input == InputForm::matching;
    const AnyStream input = AnyStream::phantom(spec_.type, spec_.dimension, {0, spec_.dimension},
                                               gets_dense ? Layout::dense : Layout::sparse, nnz_);
    return ranks_.run(std::vector<AnyStream>(ranks, input), options, states);
  }

  std::string fault_of(const TimedCall&) override { return {}; }

 private:
  LocalRanks& ranks_;
  const ComparisonSpec& spec_;
  std::uint64_t nnz_;
};

// Quartiles of the calls' times, the largest depth, and means of everything else.
class MeanCall {
 public:
  void add(const TimedCall& call) {
    Row counted;
    count_call(counted, call);
    seconds_.push_back(call.seconds);
    depth_ = std::max(depth_, counted.depth);
    select_seconds_ += counted.select_seconds;
    const std::uint64_t numbers[] = {*counted.bytes_sent_max, *counted.bytes_sent_total,     counted.messages,
                                     counted.messages_max,    counted.data_bytes_max,        call.totals.messages,
                                     call.totals.bytes,       call.totals.busiest_port_bytes};
    std::ranges::transform(sums_, numbers, sums_.begin(), std::plus<std::uint64_t>());
    port_seconds_ += call.totals.busiest_port_seconds;
  }

  void write(Row& row, SimTotals& totals) const {
    const auto calls = static_cast<double>(seconds_.size());
    const auto mean = [&](std::size_t n) {
      return static_cast<std::uint64_t>(std::llround(static_cast<double>(sums_[n]) / calls));
    };
    row.seconds = quartiles(seconds_);
    row.depth = depth_;
    row.select_seconds = select_seconds_ / calls;
    row.bytes_sent_max = mean(0);
    row.bytes_sent_total = mean(1);
    row.messages = mean(2);
    row.messages_max = mean(3);
    row.data_bytes_max = mean(4);
    totals.messages = mean(5);
    totals.bytes = mean(6);
    totals.busiest_port_bytes = mean(7);
    totals.busiest_port_seconds = port_seconds_ / calls;
  }

 private:
  std::vector<double> seconds_;
  std::array<std::uint64_t, 8> sums_{};
  std::uint64_t depth_ = 0;
  double select_seconds_ = 0, port_seconds_ = 0;
};

void require_uniform(const ComparisonSpec& spec) {
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

Profile free_computation() {
  Profile profile;
  profile.gamma_sparse_seconds = profile.gamma_dense_seconds = profile.gamma_select_seconds = 0;
  profile.gamma_delta_vbyte_seconds = profile.gamma_bitmap_seconds = profile.gamma_rice_seconds = 0;
  return profile;
}

std::unique_ptr<Workload> make_phantom_workload(LocalRanks& ranks, const ComparisonSpec& spec, double density) {
  require_uniform(spec);
  return std::make_unique<PhantomWorkload>(ranks, spec, density);
}

// A rank holds its input, the result, and about as much again in blocks that it has received and reduced. Rows that
// split have a message of every rank for every other one under way.
double real_bytes(const ComparisonSpec& spec, double density, int ranks, std::string_view algorithm) {
  CostInput input{.ranks = ranks,
                  .dimension = static_cast<double>(spec.dimension),
                  .nnz = density * static_cast<double>(spec.dimension),
                  .value_bytes = static_cast<double>(size_of(spec.type)),
                  .index_bytes = static_cast<double>(index_bytes(spec.dimension))};
  const double dense = input.dimension * input.value_bytes;
  const bool makes_dense = algorithm == kAuto || find_algorithm(OperationKind::allreduce, algorithm).dense_result;
  const bool has_dense_input = spec.takes == Takes::accumulator || wants_dense_input(algorithm);
  const double result = makes_dense ? dense : input.stream_bytes(input.union_of(ranks), input.dimension);
  // Rows that select: the gradient, the accumulator, what it was before the call, and once more while that is checked.
  const double copies = spec.takes == Takes::accumulator ? 4 : 2;
  const double contribution = has_dense_input ? copies * dense : input.stream_bytes(input.nnz, input.dimension);
  constexpr double kMessageBytes = 700;  // with its buffers in the pool
  return ranks * (contribution + 2 * result) + kMessageBytes * ranks * ranks;
}

Simulation::Simulation(const SimOptions& options, const ComparisonSpec& spec, double density, const DataRule& rule)
    : ranks_(options), spec_(spec), real_spec_(spec), density_(density), rule_(rule) {
  std::erase_if(real_spec_.algorithms, [this](std::string_view algorithm) { return is_phantom(algorithm); });
}

bool Simulation::is_phantom(std::string_view algorithm) const {
  if (rule_.data != SimData::automatic) return rule_.data == SimData::phantom;
  return real_bytes(spec_, density_, ranks_.world_size(), algorithm) > rule_.memory_bytes;
}

Workload& Simulation::workload_of(bool phantom) {
  std::unique_ptr<Workload>& workload = phantom ? phantom_ : real_;
  if (workload) return *workload;
  if (phantom) {
    workload = make_phantom_workload(ranks_, spec_, density_);
  } else {
    workload = spec_.takes == Takes::accumulator ? make_accumulator_workload(ranks_, real_spec_, density_)
                                                 : make_stream_workload(ranks_, real_spec_, density_);
  }
  return *workload;
}

SimulatedRow Simulation::run(std::string_view algorithm) {
  SimulatedRow simulated{.is_phantom = is_phantom(algorithm)};
  Workload& workload = workload_of(simulated.is_phantom);
  Row& row = simulated.measured;
  row.algorithm = algorithm;
  row.is_dense = wants_dense_input(algorithm);
  row.density = density_;
  row.nnz = workload.nnz();
  CallOptions options = options_of(spec_, row);
  if (spec_.takes == Takes::stream) options.density = density_;
  std::vector<AlgorithmState> states(static_cast<std::size_t>(ranks_.world_size()));
  MeanCall mean;
  for (int i = 0; i < spec_.calls && row.failure.empty(); ++i) {
    const TimedCall call = workload.run(row, options, states);
    row.chosen = call.outcomes.front().algorithm;
    row.nnz_result = call.outcomes.front().stream.nnz();
    mean.add(call);
    row.failure = workload.fault_of(call);
  }
  mean.write(row, simulated.totals);
  row.verified = row.failure.empty() && !simulated.is_phantom;
  workload.end(row);
  return simulated;
}

}  // namespace tulle::measure
