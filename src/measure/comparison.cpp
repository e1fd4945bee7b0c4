#include "measure/comparison.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <set>

#include "measure/verify.hpp"
#include "measure/wire_counter.hpp"
#include "measure/workload.hpp"
#include "tulle/base/philox.hpp"
#include "tulle/stream/reduction.hpp"

namespace tulle::measure {
namespace {

const Algorithm* row_of(std::string_view algorithm) {
  return algorithm == kAuto ? nullptr : &find_algorithm(OperationKind::allreduce, algorithm);
}

struct Candidate {
  Row row;
  std::vector<AlgorithmState> states;  // what auto has learned, for each local rank
  std::set<std::string_view> checked;  // the rows whose results were compared
  std::vector<double> seconds;
  std::vector<double> select_seconds;
  std::uint64_t wire_bytes = 0;  // of this host in the timed calls
};

class Comparison {
 public:
  Comparison(LocalRanks& ranks, const ComparisonSpec& spec, double density, Progress* progress)
      : ranks_(ranks), spec_(spec), density_(density), progress_(progress) {}

  std::vector<Row> run() {
    make_workload();
    make_candidates();
    for (int i = 0; i < spec_.learn; ++i) run_auto_once();
    for (int i = 0; i < spec_.warmup; ++i) run_all_once(false);
    for (int i = 0; i < spec_.repeats; ++i) run_all_once(true);
    for (int i = 1; i < spec_.data_sets; ++i) run_on_new_data();
    std::vector<Row> rows;
    for (Candidate& candidate : candidates_) {
      if (candidate.row.verified) candidate.row.seconds = quartiles(candidate.seconds);
      if (candidate.row.verified) candidate.row.select_seconds = quartiles(candidate.select_seconds).median;
      if (has_wire_counter()) count_wire(candidate);
      rows.push_back(candidate.row);
    }
    return rows;
  }

 private:
  void make_workload() {
    report(0, "making inputs");
    const bool selects = spec_.takes == Takes::accumulator;
    workload_ =
        selects ? make_accumulator_workload(ranks_, drawn_, density_) : make_stream_workload(ranks_, drawn_, density_);
  }

  // Results on the new inputs are compared anew, in calls that are not timed.
  void run_on_new_data() {
    drawn_.seed += 1;
    make_workload();
    for (Candidate& candidate : candidates_) candidate.checked.clear();
    run_all_once(false);
    for (int i = 0; i < spec_.repeats; ++i) run_all_once(true);
  }

  void make_candidates() {
    for (const std::string_view algorithm : spec_.algorithms) {
      Candidate candidate;
      candidate.row.algorithm = algorithm;
      candidate.row.is_dense = wants_dense_input(algorithm);
      candidate.row.density = density_;
      candidate.row.nnz = workload_->nnz();
      candidate.row.verified = true;  // until it is not
      candidate.states.resize(static_cast<std::size_t>(ranks_.count()));
      order_.push_back(candidates_.size());
      candidates_.push_back(std::move(candidate));
    }
  }

  void run_auto_once() {
    for (Candidate& candidate : candidates_) {
      if (candidate.row.algorithm == kAuto) run_and_report(candidate, false);
    }
  }

  // Each call has an order of its own, the same on all ranks: who runs after a dense row finds cold caches.
  void run_all_once(bool is_timed) {
    std::shuffle(order_.begin(), order_.end(), shuffler_);
    for (const std::size_t next : order_) run_and_report(candidates_[next], is_timed);
  }

  void run_and_report(Candidate& candidate, bool is_timed) {
    report(0, candidate.row.algorithm);
    if (candidate.row.verified) run_once(candidate, is_timed);
    report(1, candidate.row.algorithm);
  }

  void run_once(Candidate& candidate, bool is_timed) {
    const CallOptions options = options_of(spec_, candidate.row);
    wait_for_all();
    const std::uint64_t wire_before = has_wire_counter() ? wire_bytes_sent() : 0;
    const TimedCall call = workload_->run(candidate.row, options, candidate.states);
    candidate.row.chosen = call.outcomes.front().algorithm;
    candidate.row.nnz_result = call.outcomes.front().stream.nnz();
    if (candidate.checked.insert(candidate.row.chosen).second) verify(candidate.row, call);
    count(candidate, call, is_timed);  // in which ranks meet, so the call's messages have left
    if (is_timed && has_wire_counter()) candidate.wire_bytes += wire_bytes_sent() - wire_before;
  }

  void wait_for_all() { ranks_.meet(); }

  // The right values as far as each rank can tell, and equal bits on all of them.
  void verify(Row& row, const TimedCall& call) {
    const std::string fault = workload_->fault_of(call);
    double lowest = bits_of(call.outcomes.front().stream), highest = lowest;
    for (const Outcome& outcome : call.outcomes) {
      lowest = std::min<double>(lowest, bits_of(outcome.stream));
      highest = std::max<double>(highest, bits_of(outcome.stream));
    }
    const std::vector<double> all = ranks_.agree({fault.empty() ? 0.0 : 1.0, highest, -lowest}, Op::max());
    if (all[0] != 0) row.failure = fault.empty() ? "is wrong elsewhere" : fault;
    if (all[1] != -all[2]) row.failure += row.failure.empty() ? "ranks differ" : ", and ranks differ";
    row.verified = row.failure.empty();
  }

  void count(Candidate& candidate, const TimedCall& call, bool is_timed) {
    Row local;
    count_call(local, call);
    const std::vector<double> largest = ranks_.agree(
        {call.seconds, static_cast<double>(*local.bytes_sent_max), static_cast<double>(local.data_bytes_max),
         static_cast<double>(local.messages_max), static_cast<double>(local.depth), local.select_seconds},
        Op::max());
    const std::vector<double> sums =
        ranks_.agree({static_cast<double>(*local.bytes_sent_total), static_cast<double>(local.messages)}, Op::sum());
    if (is_timed) candidate.seconds.push_back(largest[0]);
    if (is_timed) candidate.select_seconds.push_back(largest[5]);
    const auto data_bytes = static_cast<std::uint64_t>(largest[2]);  // differ where gradients do
    if (is_timed) candidate.row.data_bytes_max = std::max(candidate.row.data_bytes_max, data_bytes);
    candidate.row.messages_max = static_cast<std::uint64_t>(largest[3]);
    candidate.row.depth = static_cast<std::uint64_t>(largest[4]);
    candidate.row.messages = static_cast<std::uint64_t>(sums[1]);
    const Algorithm* const row = row_of(candidate.row.chosen);
    if (row->needs == Needs::native_allreduce) return;  // what MPI sends is not ours to count
    candidate.row.bytes_sent_max = static_cast<std::uint64_t>(largest[1]);
    candidate.row.bytes_sent_total = static_cast<std::uint64_t>(sums[0]);
  }

  void count_wire(Candidate& candidate) {
    const double mean = static_cast<double>(candidate.wire_bytes) / (spec_.repeats * spec_.data_sets);
    candidate.row.wire_bytes_sent_max = static_cast<std::uint64_t>(ranks_.agree({mean}, Op::max())[0]);
    candidate.row.wire_bytes_sent_total = static_cast<std::uint64_t>(ranks_.agree({mean}, Op::sum())[0]);
  }

  void report(std::uint64_t steps, std::string_view what) {
    if (progress_ != nullptr) progress_->advance(steps, what);
  }

  LocalRanks& ranks_;
  const ComparisonSpec& spec_;
  ComparisonSpec drawn_ = spec_;  // with the seed of the present data set
  double density_;
  Progress* progress_;
  std::unique_ptr<Workload> workload_;
  std::vector<Candidate> candidates_;
  std::vector<std::size_t> order_;
  Philox shuffler_{spec_.seed};
};

}  // namespace

InputForm input_form_from(std::string_view name) {
  if (name == "matching") return InputForm::matching;
  if (name == "sparse") return InputForm::sparse;
  throw Error(ErrorKind::bad_input, fmt::format("no input is called '{}'; there are matching, sparse", name));
}

CallOptions options_of(const ComparisonSpec& spec, const Row& row) {
  CallOptions options{.algorithm = row.algorithm,
                      .op = spec.op,
                      .index_coding = spec.index_coding,
                      .value_coding = spec.value_coding,
                      .coded_values = spec.coded_values,
                      .residual = spec.residual,
                      .teams = spec.teams,
                      .team_gather = spec.team_gather,
                      .deadline_seconds = spec.deadline_seconds,
                      .checksum = spec.checksum};
  if (spec.takes == Takes::accumulator) options.k = row.nnz;
  return options;
}

void count_call(Row& row, const TimedCall& call) {
  row.bytes_sent_max = row.bytes_sent_total = 0;
  for (const Outcome& outcome : call.outcomes) {
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

std::uint64_t calls_of(const ComparisonSpec& spec) {
  const bool has_auto = std::ranges::find(spec.algorithms, kAuto) != spec.algorithms.end();
  const auto rounds = static_cast<std::uint64_t>(spec.warmup + spec.data_sets * (spec.repeats + 1) - 1);
  return rounds * spec.algorithms.size() + (has_auto ? static_cast<std::uint64_t>(spec.learn) : 0);
}

std::vector<Row> compare(LocalRanks& ranks, const ComparisonSpec& spec, double density, Progress* progress) {
  return Comparison(ranks, spec, density, progress).run();
}

}  // namespace tulle::measure
