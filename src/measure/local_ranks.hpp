// The ranks that one thread speaks for, on which allreduces are measured.
//
// Under MPI and on threads a thread speaks for one rank and the others run the same code beside it; in simulation one
// thread speaks for all. Whoever measures writes the same for both: run the local ranks, then agree with the others.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tulle/collectives/collectives.hpp"
#include "tulle/comm/sim.hpp"

namespace tulle::measure {

/// One allreduce of all ranks, as the local ones saw it.
struct TimedCall {
  std::vector<Outcome> outcomes;  ///< of each local rank
  double seconds = 0;             ///< of the slowest local rank
  SimTotals totals;               ///< of all ranks; counted in simulation alone
};

class LocalRanks {
 public:
  virtual ~LocalRanks() = default;
  virtual std::string_view transport() const = 0;
  virtual int world_size() const = 0;
  /// The local ranks are first() and the count() - 1 that follow.
  virtual int first() const = 0;
  virtual int count() const = 0;
  bool leads() const { return first() == 0; }

  /// One input and one state for each local rank.
  virtual TimedCall run(std::span<const AnyStream> inputs, const CallOptions& options,
                        std::span<AlgorithmState> states) = 0;
  virtual TimedCall run(std::span<const Accumulator> inputs, const CallOptions& options,
                        std::span<AlgorithmState> states) = 0;
  /// Reduces values element by element over all threads that run this code, which also makes them wait for each other,
  /// at most for the communicator's default deadline.
  virtual std::vector<double> agree(std::vector<double> values, const Op& op) = 0;
  /// Waits for all of them.
  void meet() { agree({0}, Op::max()); }
};

/// One rank of a communicator, by blocking calls on a real clock.
class OneRank final : public LocalRanks {
 public:
  explicit OneRank(Communicator communicator) : communicator_(std::move(communicator)) {}
  std::string_view transport() const override;
  int world_size() const override { return communicator_.size(); }
  int first() const override { return communicator_.rank(); }
  int count() const override { return 1; }
  TimedCall run(std::span<const AnyStream> inputs, const CallOptions& options,
                std::span<AlgorithmState> states) override;
  TimedCall run(std::span<const Accumulator> inputs, const CallOptions& options,
                std::span<AlgorithmState> states) override;
  std::vector<double> agree(std::vector<double> values, const Op& op) override;

 private:
  Communicator communicator_;
};

/// All ranks of a simulation, each call in a world of its own whose virtual clock begins at zero.
class SimulatedRanks final : public LocalRanks {
 public:
  explicit SimulatedRanks(const SimOptions& options) : options_(options) {}
  std::string_view transport() const override { return "sim"; }
  int world_size() const override { return options_.ranks; }
  int first() const override { return 0; }
  int count() const override { return options_.ranks; }
  TimedCall run(std::span<const AnyStream> inputs, const CallOptions& options,
                std::span<AlgorithmState> states) override;
  TimedCall run(std::span<const Accumulator> inputs, const CallOptions& options,
                std::span<AlgorithmState> states) override;
  std::vector<double> agree(std::vector<double> values, const Op&) override { return values; }

 private:
  TimedCall run_ranks(std::size_t ranks, const std::function<Request<Outcome>(Communicator&, std::size_t rank)>& start);

  SimOptions options_;
};

}  // namespace tulle::measure
