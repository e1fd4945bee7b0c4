// One rank of a job that storm_processes.py starts and strikes: it sums without end, and where a sum fails it shrinks
// and goes on with whoever is left.
//
//   tulle_storm_rank DIRECTORY RANK RANKS SEED [memory|sockets] [lazy] [thread] [hasty] [heartbeat]
//
// DIRECTORY is where ranks meet, where each writes log.RANK, a line of JSON for what happens to it, and where the file
// `stop` appears when it is enough. How it ends says how it went; rank_log.hpp has the codes.
#include <unistd.h>

#include <cstdlib>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "storm/rank_log.hpp"
#include "stream/synthetic.hpp"
#include "tulle/base/philox.hpp"
#include "tulle/collectives/collectives.hpp"
#include "tulle/comm/control.hpp"
#include "tulle/comm/shrink.hpp"
#include "tulle/comm/tcp.hpp"
#include "tulle/stream/reduction.hpp"

namespace tulle::storm {
namespace {

using Json = nlohmann::json;

// Ranks that are hasty wait for less when they meet: one of them is killed while they do.
constexpr double kMeetSeconds = 30, kHastySeconds = 5;
constexpr double kSumSeconds = 1;
// With heartbeats a rank that is stopped is known by them, long before the deadline of a sum. The limit is for ranks
// that live and are not given a processor, too.
constexpr Heartbeat kHeartbeat{.interval_seconds = 0.25, .limit_seconds = 3};
constexpr double kPatientSumSeconds = 20;
// Patience is for ranks that live and are not given a processor, with eight to each and other work beside them. What it
// costs is the time until survivors of a stopped rank go on.
const AgreeOptions kAgree{.deadline_seconds = 10, .patience_seconds = 3};
constexpr double kBetweenLines = 0.02;

struct Arguments {
  std::string directory;
  int rank = 0, ranks = 0;
  std::uint64_t seed = 0;
  std::set<std::string> ways;
};

double meet_seconds(const std::set<std::string>& ways) { return ways.contains("hasty") ? kHastySeconds : kMeetSeconds; }

TcpOptions options_of(const std::set<std::string>& ways) {
  TcpOptions options{.deadline_seconds = meet_seconds(ways)};
  if (ways.contains("lazy")) options.lazy_above = 1;
  if (ways.contains("heartbeat")) options.heartbeat = kHeartbeat;
  if (ways.contains("sockets")) options.host_reads = HostReads::never;
  // Most of what is sent is then read from the sender's memory, piece by piece, so that it may die in the middle.
  if (ways.contains("memory")) {
    options.detach_bytes = 1024;
    options.pull_bytes = 2048;
    options.pull_chunk_bytes = 8192;
  }
  return options;
}

// What one collective of a step is; equal on all ranks.
struct Sum {
  const Algorithm* row;
  SyntheticSpec inputs;
  bool has_checksum;
};

std::vector<const Algorithm*> rows() {
  std::vector<const Algorithm*> rows;
  for (const Algorithm& row : registry()) {
    const bool is_sum = row.kind == OperationKind::allreduce && row.takes == Takes::stream;
    if (is_sum && row.needs == Needs::messages) rows.push_back(&row);
  }
  return rows;
}

Sum random_sum(Philox& random) {
  constexpr ValueType kTypes[] = {ValueType::i64, ValueType::i32, ValueType::f32, ValueType::f64};
  const auto all = rows();
  const std::uint64_t dimension = (std::uint64_t{16} << random.below(14)) + random.below(9);
  return {.row = all[random.below(all.size())],
          .inputs = {.type = kTypes[random.below(4)],
                     .dimension = dimension,
                     .nnz = dimension >> random.below(8),
                     .seed = random.below(1 << 20)},
          .has_checksum = random.below(4) == 0};
}

AnyStream input_of(const Sum& sum, int rank) {
  SyntheticSpec spec = sum.inputs;
  spec.rank = rank;
  spec.ranks = rank + 1;
  return synthetic_stream(spec);
}

AnyStream expected(const Sum& sum, std::span<const int> members) {
  AnyStream result = input_of(sum, members.front());
  for (const int rank : members.subspan(1)) result = reduce(result, input_of(sum, rank), Op::sum());
  return to_dense(result, Op::sum());
}

class Rank {
 public:
  Rank(Arguments arguments, Log& log, Communicator communicator)
      : arguments_(std::move(arguments)), log_(log), current_(std::move(communicator)) {
    current_.set_default_deadline(arguments_.ways.contains("heartbeat") ? kPatientSumSeconds : kSumSeconds);
    if (arguments_.ways.contains("thread")) current_.start_progress_thread();
  }

  int run() {
    while (true) {
      began_ = now();
      try {
        if (const std::optional<int> code = sum_until_stopped()) return *code;
      } catch (const Error& error) {
        Json line = to_json(error);
        line.update({{"event", "error"}, {"began", began_}});
        log_.write(std::move(line));
      }
      try {
        current_ = shrink(current_, kAgree);
      } catch (const Error& error) {
        if (error.kind() != ErrorKind::excluded) throw;
        Json line = to_json(error);
        line["event"] = "excluded";
        log_.write(std::move(line));
        return kExcluded;
      }
      said_ = 0;
    }
  }

 private:
  std::vector<int> members() const {
    const auto& ranks = current_.context()->world_ranks;
    return {ranks.begin(), ranks.end()};
  }

  // Ranks of a new communicator may have come from different steps: a sum that one has, another lost.
  std::optional<int> sum_until_stopped() {
    const double mine[] = {static_cast<double>(step_)};
    step_ = static_cast<std::uint64_t>(combine(current_, mine, Op::max())[0]);
    for (; !is_stopped(); ++step_) {
      began_ = now();
      if (!is_right()) return kWrongSum;
      say_well();
    }
    log_.write({{"event", "end"}, {"step", step_}});
    return kStopped;
  }

  // Asked of all, so that nobody goes on alone.
  bool is_stopped() {
    began_ = now();
    const bool is_there = ::access((arguments_.directory + "/stop").c_str(), F_OK) == 0;
    const double mine[] = {is_there ? 1.0 : 0.0};
    return combine(current_, mine, Op::max())[0] != 0;
  }

  // One to three sums in flight.
  bool is_right() {
    Philox random(arguments_.seed, step_);
    std::vector<Sum> sums;
    std::vector<Request<Outcome>> requests;
    for (auto count = 1 + random.below(3); count > 0; --count) sums.push_back(random_sum(random));
    for (const Sum& sum : sums) {
      requests.push_back(iallreduce(current_, input_of(sum, arguments_.rank),
                                    {.algorithm = sum.row->name, .checksum = sum.has_checksum}));
    }
    for (std::size_t i = 0; i < sums.size(); ++i) {
      const Outcome outcome = requests[i].wait();
      if (to_dense(outcome.stream, Op::sum()) == expected(sums[i], members())) continue;
      log_.write({{"event", "wrong"}, {"row", sums[i].row->name}, {"step", step_}, {"members", members()}});
      return false;
    }
    return true;
  }

  void say_well() {
    if (now() - said_ < kBetweenLines) return;
    said_ = now();
    log_.write({{"event", "well"}, {"step", step_}, {"members", members()}, {"epoch", current_.context()->epoch}});
  }

  Arguments arguments_;
  Log& log_;
  Communicator current_;
  std::uint64_t step_ = 0;
  double began_ = 0;  ///< when the call that is under way did
  double said_ = 0;   ///< when this rank last wrote that it is well
};

int run(const Arguments& arguments) {
  Log log(arguments.directory + "/log." + std::to_string(arguments.rank));
  log.write({{"event", "begin"}});
  try {
    std::optional<Communicator> communicator;
    try {
      const auto rendezvous = directory_rendezvous({.path = arguments.directory + "/meet",
                                                    .rank = arguments.rank,
                                                    .size = arguments.ranks,
                                                    .deadline_seconds = meet_seconds(arguments.ways)});
      communicator = connect(*rendezvous, options_of(arguments.ways));
    } catch (const Error& error) {
      Json line = to_json(error);
      line["event"] = "not_started";
      log.write(std::move(line));
      return kNotStarted;
    }
    return Rank(arguments, log, *communicator).run();
  } catch (const std::exception& error) {
    log.write({{"event", "unexpected"}, {"what", error.what()}});
    return kUnexpected;
  }
}

}  // namespace
}  // namespace tulle::storm

int main(int argc, char** argv) {
  if (argc < 5) return 2;
  return tulle::storm::run({.directory = argv[1],
                            .rank = std::atoi(argv[2]),
                            .ranks = std::atoi(argv[3]),
                            .seed = std::strtoull(argv[4], nullptr, 10),
                            .ways = {argv + 5, argv + argc}});
}
