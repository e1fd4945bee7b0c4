#include "cli/race.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <set>

#include "cli/course.hpp"
#include "cli/verify.hpp"
#include "cli/wire_counter.hpp"
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
  std::vector<double> select_seconds;
  std::uint64_t wire_bytes = 0;  // of this host in the timed laps
};

class Race {
 public:
  Race(Track& track, const RaceSpec& spec, double density, Progress* progress)
      : track_(track), spec_(spec), density_(density), progress_(progress) {}

  std::vector<RaceRow> run() {
    make_course();
    make_contenders();
    for (int i = 0; i < spec_.learn; ++i) run_auto_once();
    for (int i = 0; i < spec_.warmup; ++i) run_all_once(false);
    for (int i = 0; i < spec_.repeats; ++i) run_all_once(true);
    std::vector<RaceRow> rows;
    for (Contender& contender : contenders_) {
      if (contender.row.verified) contender.row.seconds = quartiles(contender.seconds);
      if (contender.row.verified) contender.row.select_seconds = quartiles(contender.select_seconds).median;
      if (has_wire_counter()) count_wire(contender);
      rows.push_back(contender.row);
    }
    return rows;
  }

 private:
  void make_course() {
    report(0, "making inputs");
    const bool selects = spec_.takes == Takes::accumulator;
    course_ = selects ? make_accumulator_course(track_, spec_, density_) : make_stream_course(track_, spec_, density_);
  }

  void make_contenders() {
    for (const std::string_view algorithm : spec_.algorithms) {
      Contender contender;
      contender.row.algorithm = algorithm;
      contender.row.is_dense = wants_dense_input(algorithm);
      contender.row.density = density_;
      contender.row.nnz = course_->nnz();
      contender.row.verified = true;  // until it is not
      contender.states.resize(static_cast<std::size_t>(track_.local_ranks()));
      order_.push_back(contenders_.size());
      contenders_.push_back(std::move(contender));
    }
  }

  void run_auto_once() {
    for (Contender& contender : contenders_) {
      if (contender.row.algorithm == kAuto) run_and_report(contender, false);
    }
  }

  // Each lap has an order of its own, the same on all ranks: who runs after a dense row finds cold caches.
  void run_all_once(bool is_timed) {
    std::shuffle(order_.begin(), order_.end(), shuffler_);
    for (const std::size_t next : order_) run_and_report(contenders_[next], is_timed);
  }

  void run_and_report(Contender& contender, bool is_timed) {
    report(0, contender.row.algorithm);
    if (contender.row.verified) run_once(contender, is_timed);
    report(1, contender.row.algorithm);
  }

  void run_once(Contender& contender, bool is_timed) {
    const CallOptions options = options_of(spec_, contender.row);
    wait_for_all();
    const std::uint64_t wire_before = has_wire_counter() ? wire_bytes_sent() : 0;
    const Lap lap = course_->run(contender.row, options, contender.states);
    contender.row.chosen = lap.outcomes.front().algorithm;
    contender.row.nnz_result = lap.outcomes.front().stream.nnz();
    if (contender.checked.insert(contender.row.chosen).second) verify(contender.row, lap);
    count(contender, lap, is_timed);  // in which ranks meet, so the lap's messages have left
    if (is_timed && has_wire_counter()) contender.wire_bytes += wire_bytes_sent() - wire_before;
  }

  void wait_for_all() { track_.agree({0}, Op::max()); }

  // The right values as far as each rank can tell, and equal bits on all of them.
  void verify(RaceRow& row, const Lap& lap) {
    const std::string fault = course_->fault_of(lap);
    double lowest = bits_of(lap.outcomes.front().stream), highest = lowest;
    for (const Outcome& outcome : lap.outcomes) {
      lowest = std::min<double>(lowest, bits_of(outcome.stream));
      highest = std::max<double>(highest, bits_of(outcome.stream));
    }
    const std::vector<double> all = track_.agree({fault.empty() ? 0.0 : 1.0, highest, -lowest}, Op::max());
    if (all[0] != 0) row.failure = fault.empty() ? "is wrong elsewhere" : fault;
    if (all[1] != -all[2]) row.failure += row.failure.empty() ? "ranks differ" : ", and ranks differ";
    row.verified = row.failure.empty();
  }

  void count(Contender& contender, const Lap& lap, bool is_timed) {
    RaceRow local;
    count_lap(local, lap);
    const std::vector<double> largest = track_.agree(
        {lap.seconds, static_cast<double>(*local.bytes_sent_max), static_cast<double>(local.data_bytes_max),
         static_cast<double>(local.messages_max), static_cast<double>(local.depth), local.select_seconds},
        Op::max());
    const std::vector<double> sums =
        track_.agree({static_cast<double>(*local.bytes_sent_total), static_cast<double>(local.messages)}, Op::sum());
    if (is_timed) contender.seconds.push_back(largest[0]);
    if (is_timed) contender.select_seconds.push_back(largest[5]);
    contender.row.data_bytes_max = static_cast<std::uint64_t>(largest[2]);
    contender.row.messages_max = static_cast<std::uint64_t>(largest[3]);
    contender.row.depth = static_cast<std::uint64_t>(largest[4]);
    contender.row.messages = static_cast<std::uint64_t>(sums[1]);
    const Algorithm* const row = row_of(contender.row.chosen);
    if (row->needs == Needs::native_allreduce) return;  // what MPI sends is not ours to count
    contender.row.bytes_sent_max = static_cast<std::uint64_t>(largest[1]);
    contender.row.bytes_sent_total = static_cast<std::uint64_t>(sums[0]);
  }

  void count_wire(Contender& contender) {
    const double mean = static_cast<double>(contender.wire_bytes) / spec_.repeats;
    contender.row.wire_bytes_sent_max = static_cast<std::uint64_t>(track_.agree({mean}, Op::max())[0]);
    contender.row.wire_bytes_sent_total = static_cast<std::uint64_t>(track_.agree({mean}, Op::sum())[0]);
  }

  void report(std::uint64_t steps, std::string_view what) {
    if (progress_ != nullptr) progress_->advance(steps, what);
  }

  Track& track_;
  const RaceSpec& spec_;
  double density_;
  Progress* progress_;
  std::unique_ptr<Course> course_;
  std::vector<Contender> contenders_;
  std::vector<std::size_t> order_;
  Philox shuffler_{spec_.seed};
};

}  // namespace

RaceInput race_input_from(std::string_view name) {
  if (name == "matching") return RaceInput::matching;
  if (name == "sparse") return RaceInput::sparse;
  throw Error(ErrorKind::bad_input, fmt::format("no input is called '{}'; there are matching, sparse", name));
}

CallOptions options_of(const RaceSpec& spec, const RaceRow& row) {
  CallOptions options{.algorithm = row.algorithm,
                      .op = spec.op,
                      .index_coding = spec.index_coding,
                      .value_coding = spec.value_coding,
                      .codes_contributions = spec.codes_contributions,
                      .residual = spec.residual,
                      .teams = spec.teams,
                      .team_gather = spec.team_gather,
                      .deadline_seconds = spec.deadline_seconds,
                      .checksum = spec.checksum};
  if (spec.takes == Takes::accumulator) options.k = row.nnz;
  return options;
}

void count_lap(RaceRow& row, const Lap& lap) {
  row.bytes_sent_max = row.bytes_sent_total = 0;
  for (const Outcome& outcome : lap.outcomes) {
    const Counts& counts = outcome.counts;
    row.bytes_sent_max = std::max(*row.bytes_sent_max, counts.bytes_sent);
    row.data_bytes_max = std::max({row.data_bytes_max, counts.data_bytes_sent, counts.data_bytes_received});
    row.messages_max = std::max(row.messages_max, counts.messages_sent);
    row.depth = std::max<std::uint64_t>(row.depth, counts.depth);
    row.select_seconds = std::max(row.select_seconds, outcome.select_seconds);
    *row.bytes_sent_total += counts.bytes_sent;
    row.messages += counts.messages_sent;
  }
}

bool wants_dense_input(std::string_view algorithm) {
  const Algorithm* const row = row_of(algorithm);
  return row != nullptr && row->input == Layout::dense;
}

std::uint64_t laps_of(const RaceSpec& spec) {
  const bool has_auto = std::ranges::find(spec.algorithms, kAuto) != spec.algorithms.end();
  const auto laps = static_cast<std::uint64_t>(spec.warmup + spec.repeats);
  return laps * spec.algorithms.size() + (has_auto ? static_cast<std::uint64_t>(spec.learn) : 0);
}

std::vector<RaceRow> race(Track& track, const RaceSpec& spec, double density, Progress* progress) {
  return Race(track, spec, density, progress).run();
}

}  // namespace tulle::cli
