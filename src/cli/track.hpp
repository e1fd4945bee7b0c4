// Where allreduces are raced: the ranks that one thread speaks for.
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

namespace tulle::cli {

/// One allreduce of all ranks, as the local ones saw it.
struct Lap {
  std::vector<Outcome> outcomes;  ///< of each local rank
  double seconds = 0;             ///< of the slowest local rank
  SimTotals totals;               ///< of all ranks; counted in simulation alone
};

class Track {
 public:
  virtual ~Track() = default;
  virtual std::string_view transport() const = 0;
  virtual int ranks() const = 0;
  /// The local ranks are first_rank() and the local_ranks() - 1 that follow.
  virtual int first_rank() const = 0;
  virtual int local_ranks() const = 0;
  bool leads() const { return first_rank() == 0; }

  /// One input and one state for each local rank.
  virtual Lap run(std::span<const AnyStream> inputs, const CallOptions& options, std::span<AlgorithmState> states) = 0;
  virtual Lap run(std::span<const Accumulator> inputs, const CallOptions& options,
                  std::span<AlgorithmState> states) = 0;
  /// Reduces values element by element over all threads that run this code, which also makes them wait for each other.
  virtual std::vector<double> agree(std::vector<double> values, const Op& op) = 0;
};

/// One rank of a communicator, by blocking calls on a real clock.
class RankTrack final : public Track {
 public:
  explicit RankTrack(Communicator communicator) : communicator_(std::move(communicator)) {}
  std::string_view transport() const override;
  int ranks() const override { return communicator_.size(); }
  int first_rank() const override { return communicator_.rank(); }
  int local_ranks() const override { return 1; }
  Lap run(std::span<const AnyStream> inputs, const CallOptions& options, std::span<AlgorithmState> states) override;
  Lap run(std::span<const Accumulator> inputs, const CallOptions& options, std::span<AlgorithmState> states) override;
  std::vector<double> agree(std::vector<double> values, const Op& op) override;

 private:
  Communicator communicator_;
};

/// All ranks of a simulation, each lap in a world of its own whose virtual clock begins at zero.
class SimTrack final : public Track {
 public:
  explicit SimTrack(const SimOptions& options) : options_(options) {}
  std::string_view transport() const override { return "sim"; }
  int ranks() const override { return options_.ranks; }
  int first_rank() const override { return 0; }
  int local_ranks() const override { return options_.ranks; }
  Lap run(std::span<const AnyStream> inputs, const CallOptions& options, std::span<AlgorithmState> states) override;
  Lap run(std::span<const Accumulator> inputs, const CallOptions& options, std::span<AlgorithmState> states) override;
  std::vector<double> agree(std::vector<double> values, const Op&) override { return values; }

 private:
  Lap run_ranks(std::size_t ranks, const std::function<Request<Outcome>(Communicator&, std::size_t rank)>& start);

  SimOptions options_;
};

}  // namespace tulle::cli
