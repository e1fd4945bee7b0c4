// The ranks that train together, as solvers see them: sums that are awaited, timed and counted.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tulle/base/buffer.hpp"
#include "tulle/collectives/collectives.hpp"
#include "tulle/comm/control.hpp"
#include "tulle/comm/settings.hpp"

namespace tulle::linear {

struct CommunicationStats {
  double seconds = 0;                ///< in which this rank waited
  double bytes = 0;                  ///< sent by this rank
  bool has_estimated_bytes = false;  ///< the transport's own allreduce is not counted; the least it can send stands in
  std::uint64_t calls = 0;
};

class Group {
 public:
  explicit Group(Communicator communicator) : communicator_(std::move(communicator)) {}

  int rank() const { return communicator_.rank(); }
  int size() const { return communicator_.size(); }
  /// How many ranks the transport knows to be where this one is.
  std::uint64_t ranks_of_node() const;
  /// Seconds on the transport's clock, which is virtual in simulation.
  double now() const { return communicator_.engine()->transport().now(); }
  /// Bills a simulator for work on that many (index, value) pairs.
  void charge(std::uint64_t pairs);
  /// The same for values of a dense vector.
  void charge_dense(std::uint64_t values);
  /// co_await lets what is in flight go on.
  Engine::Yield yield() { return Engine::Yield(*communicator_.engine()); }
  const CommunicationStats& stats() const { return stats_; }
  /// Goes back to earlier numbers, so that what came after them does not count.
  void set_stats(const CommunicationStats& stats) { stats_ = stats; }

  /// What collectives take as an algorithm, for "dense", "sparse", "auto" or a row's own name. Throws bad_input for
  /// others.
  std::string row_of(std::string_view aggregation, OperationKind kind = OperationKind::allreduce) const;

  /// Before the first sum of its dimension: ranks agree how many values a rank brings, which auto goes by until sums
  /// teach it more. Later it does nothing.
  Task<> expect(const AnyStream& stream);
  /// The sum over ranks by that row.
  Task<AnyStream> sum(AnyStream stream, std::string_view row);
  /// Everyone's blocks together, by that row of allgather.
  Task<AnyStream> gather(AnyStream block, std::string_view row);
  /// Both in two halves, of which several may be in flight; they end in the order in which they began.
  void start_sum(AnyStream stream, std::string_view row);
  void start_gather(AnyStream block, std::string_view row);
  Task<AnyStream> finish_oldest();
  std::size_t in_flight() const { return pending_.size(); }

  /// A few numbers reduced over ranks. Neither timed nor counted. (GCC 12 cannot await a call with a braced list in it:
  /// give the numbers a name.)
  Task<std::vector<double>> agree(std::vector<double> values, Op op = Op::sum());
  /// See tulle::require_same_settings().
  Task<> require_same(std::vector<Setting> settings);
  /// See tulle::fail_together().
  Task<> fail_together(std::exception_ptr error);

 private:
  // Of sums of one dimension: labels, gradients and scores have little in common.
  struct Learned {
    AlgorithmState state;
    std::optional<double> density;  // of the first sums
  };
  struct Pending {
    std::uint64_t dimension;
    AlgorithmState state;  // the request points at it; a deque keeps it in its place
    Request<Outcome> request;
  };

  void start(AnyStream stream, CallOptions options);
  AnyStream count(const Outcome& outcome, double started);

  Communicator communicator_;
  CommunicationStats stats_;
  PoolMap<std::uint64_t, Learned> learned_;  // by dimension
  PoolDeque<Pending> pending_;
};

}  // namespace tulle::linear
