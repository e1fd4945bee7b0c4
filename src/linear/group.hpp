// The ranks that train together, as solvers see them: sums that are timed and counted, awaited or blocking.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tulle/base/buffer.hpp"
#include "tulle/collectives/collectives.hpp"
#include "tulle/linear/waiting.hpp"

namespace tulle::linear {

/// The error that `work` throws, for fail_together(); null where all went well.
template <class Work>
std::exception_ptr failure_of(Work work) {
  try {
    work();
  } catch (const Error&) {
    return std::current_exception();
  }
  return nullptr;
}

struct CommunicationStats {
  double seconds = 0;                ///< in which this rank waited
  double bytes = 0;                  ///< sent by this rank
  bool has_estimated_bytes = false;  ///< the transport's own allreduce is not counted; the least it can send stands in
  std::uint64_t calls = 0;
};

class Group {
 public:
  Group(Communicator communicator, Waiting waiting);

  int rank() const { return communicator_.rank(); }
  int size() const { return communicator_.size(); }
  /// Seconds on the transport's clock, which is virtual in simulation.
  double now() const { return communicator_.engine()->transport().now(); }
  /// Bills a simulator for work on that many (index, value) pairs.
  void charge(std::uint64_t pairs);
  /// The same for values of a dense vector.
  void charge_dense(std::uint64_t values);
  /// Lets messages of what is in flight go on.
  void progress();
  const CommunicationStats& stats() const { return stats_; }
  /// Goes back to earlier numbers, so that what came after them does not count.
  void set_stats(const CommunicationStats& stats) { stats_ = stats; }

  /// A row of the registry for "dense", "sparse", "auto" or a row's own name. Throws bad_input for others.
  std::string row_of(std::string_view aggregation, OperationKind kind = OperationKind::allreduce) const;

  /// The sum over ranks by that row.
  Task<AnyStream> sum(AnyStream stream, std::string_view row);
  /// The same in two halves, of which several may be in flight; they end in the order in which they began.
  void start_sum(AnyStream stream, std::string_view row);
  Task<AnyStream> finish_sum();
  std::size_t in_flight() const { return pending_.size(); }

  /// Everyone's blocks together, by that row of allgather.
  Task<AnyStream> gather(AnyStream block, std::string_view row);
  /// A few numbers reduced over ranks. Neither timed nor counted. (GCC 12 cannot await a call with a braced list in it:
  /// give the numbers a name.)
  Task<std::vector<double>> agree(std::vector<double> values, Op op = Op::sum());
  /// See tulle::linear::fail_together().
  Task<> fail_together(std::exception_ptr error);

 private:
  struct Pending {
    AlgorithmState state;  // the request points at it; a deque keeps it in its place
    std::optional<Request<Outcome>> request;
  };

  AnyStream count(const Outcome& outcome, double started);

  Communicator communicator_;
  Waiting waiting_;
  CommunicationStats stats_;
  AlgorithmState learned_;
  PoolDeque<Pending> pending_;
};

}  // namespace tulle::linear
