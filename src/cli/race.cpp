#include "cli/race.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "cli/verify.hpp"
#include "tulle/base/philox.hpp"
#include "tulle/stream/reduce.hpp"

namespace tulle::cli {
namespace {

const Algorithm* row_of(std::string_view algorithm) {
  return algorithm == kAuto ? nullptr : &find_algorithm(OperationKind::allreduce, algorithm);
}

struct Contender {
  RaceRow row;
  std::vector<AlgorithmState> states;  // what auto has learned, for each local rank
  std::set<std::string_view> checked;  // the rows whose results were compared
  std::vector<double> seconds;
};

class Race {
 public:
  Race(Track& track, const RaceSpec& spec, double density, Progress* progress)
      : track_(track), spec_(spec), density_(density), progress_(progress) {}

  std::vector<RaceRow> run() {
    make_inputs();
    make_contenders();
    for (int i = 0; i < spec_.warmup; ++i) run_all_once(false);
    for (int i = 0; i < spec_.repeats; ++i) run_all_once(true);
    std::vector<RaceRow> rows;
    for (Contender& contender : contenders_) {
      if (contender.row.verified) contender.row.seconds = quartiles(contender.seconds);
      rows.push_back(contender.row);
    }
    return rows;
  }

 private:
  void make_inputs() {
    report(0, "making inputs");
    SyntheticSpec input{
        .type = spec_.type,
        .dimension = spec_.dimension,
        .nnz = static_cast<std::uint64_t>(std::llround(density_ * static_cast<double>(spec_.dimension))),
        .overlap = spec_.overlap,
        .ranks = track_.ranks(),
        .seed = spec_.seed};
    for (int local = 0; local < track_.local_ranks(); ++local) {
      input.rank = track_.first_rank() + local;
      sparse_inputs_.push_back(synthetic_stream(input));
    }
    report(0, "making the serial sum");
    if (track_.leads()) expected_ = serial_reduction(input, spec_.op);
    if (spec_.input == RaceInput::sparse) return;
    if (!std::any_of(spec_.algorithms.begin(), spec_.algorithms.end(), wants_dense_input)) return;
    for (const AnyStream& sparse : sparse_inputs_) dense_inputs_.push_back(to_dense(sparse, spec_.op));
  }

  void make_contenders() {
    for (const std::string_view algorithm : spec_.algorithms) {
      Contender contender;
      contender.row.algorithm = algorithm;
      contender.row.is_dense = wants_dense_input(algorithm);
      contender.row.density = density_;
      contender.row.nnz = sparse_inputs_.front().nnz();
      contender.row.verified = true;  // until it is not
      contender.states.resize(sparse_inputs_.size());
      order_.push_back(contenders_.size());
      contenders_.push_back(std::move(contender));
    }
  }

  // Each lap has an order of its own, the same on all ranks: who runs after a dense row finds cold caches.
  void run_all_once(bool is_timed) {
    std::shuffle(order_.begin(), order_.end(), shuffler_);
    for (const std::size_t next : order_) {
      Contender& contender = contenders_[next];
      report(0, contender.row.algorithm);
      if (contender.row.verified) run_once(contender, is_timed);
      report(1, contender.row.algorithm);
    }
  }

  void run_once(Contender& contender, bool is_timed) {
    const CallOptions options{.algorithm = contender.row.algorithm,
                              .op = spec_.op,
                              .deadline_seconds = spec_.deadline_seconds,
                              .checksum = spec_.checksum};
    wait_for_all();
    const bool gets_dense = contender.row.is_dense && spec_.input == RaceInput::matching;
    const Lap lap = track_.run(gets_dense ? dense_inputs_ : sparse_inputs_, options, contender.states);
    contender.row.chosen = lap.outcomes.front().algorithm;
    contender.row.nnz_result = lap.outcomes.front().stream.nnz();
    if (contender.checked.insert(contender.row.chosen).second) verify(contender.row, lap);
    count(contender, lap, is_timed);
  }

  void wait_for_all() { track_.agree({0}, Op::max()); }

  // The serial sum on rank 0, and equal bits on all ranks.
  void verify(RaceRow& row, const Lap& lap) {
    const AnyStream& result = lap.outcomes.front().stream;
    const bool is_wrong = track_.leads() && !means_the_same(result, expected_, spec_.op, track_.ranks());
    double lowest = bits_of(result), highest = lowest;
    for (const Outcome& outcome : lap.outcomes) {
      lowest = std::min<double>(lowest, bits_of(outcome.stream));
      highest = std::max<double>(highest, bits_of(outcome.stream));
    }
    const std::vector<double> all = track_.agree({is_wrong ? 1.0 : 0.0, highest, -lowest}, Op::max());
    if (all[0] != 0) row.failure = "is not the serial sum";
    if (all[1] != -all[2]) row.failure += row.failure.empty() ? "ranks differ" : ", and ranks differ";
    row.verified = row.failure.empty();
  }

  void count(Contender& contender, const Lap& lap, bool is_timed) {
    std::uint64_t most_bytes = 0, bytes = 0, messages = 0;
    for (const Outcome& outcome : lap.outcomes) {
      most_bytes = std::max(most_bytes, outcome.counts.bytes_sent);
      bytes += outcome.counts.bytes_sent;
      messages += outcome.counts.messages_sent;
    }
    const std::vector<double> largest = track_.agree({lap.seconds, static_cast<double>(most_bytes)}, Op::max());
    const std::vector<double> sums =
        track_.agree({static_cast<double>(bytes), static_cast<double>(messages)}, Op::sum());
    if (is_timed) contender.seconds.push_back(largest[0]);
    contender.row.messages = static_cast<std::uint64_t>(sums[1]);
    const Algorithm* const row = row_of(contender.row.chosen);
    if (row->needs == Needs::native_allreduce) return;  // what MPI sends is not ours to count
    contender.row.bytes_sent_max = static_cast<std::uint64_t>(largest[1]);
    contender.row.bytes_sent_total = static_cast<std::uint64_t>(sums[0]);
  }

  void report(std::uint64_t steps, std::string_view what) {
    if (progress_ != nullptr) progress_->advance(steps, what);
  }

  Track& track_;
  const RaceSpec& spec_;
  double density_;
  Progress* progress_;
  std::vector<AnyStream> sparse_inputs_;
  std::vector<AnyStream> dense_inputs_;
  AnyStream expected_;  // on the leader alone
  std::vector<Contender> contenders_;
  std::vector<std::size_t> order_;
  Philox shuffler_{spec_.seed};
};

}  // namespace

Quartiles quartiles(std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  const auto at = [&](double share) {
    const double place = share * static_cast<double>(samples.size() - 1);
    const auto below = static_cast<std::size_t>(place);
    const std::size_t above = std::min(below + 1, samples.size() - 1);
    return samples[below] + (place - static_cast<double>(below)) * (samples[above] - samples[below]);
  };
  return {at(0.25), at(0.5), at(0.75)};
}

RaceInput race_input_from(std::string_view name) {
  if (name == "matching") return RaceInput::matching;
  if (name == "sparse") return RaceInput::sparse;
  throw Error(ErrorKind::bad_input, fmt::format("no input is called '{}'; there are matching, sparse", name));
}

bool wants_dense_input(std::string_view algorithm) {
  const Algorithm* const row = row_of(algorithm);
  return row != nullptr && row->input == Layout::dense;
}

std::uint64_t laps_of(const RaceSpec& spec) {
  return static_cast<std::uint64_t>(spec.warmup + spec.repeats) * spec.algorithms.size();
}

std::vector<RaceRow> race(Track& track, const RaceSpec& spec, double density, Progress* progress) {
  return Race(track, spec, density, progress).run();
}

}  // namespace tulle::cli
