// Storms: a job of simulated ranks sums, loses some of them at any moment, agrees, shrinks and goes on. One *schedule*
// is one such job with its faults; its number decides everything, so that a failure is repeated by it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tulle/collectives/registry.hpp"
#include "tulle/comm/agree.hpp"
#include "tulle/comm/sim.hpp"

namespace tulle::storm {

/// Every row of the registry that a simulation can run; but dense_allgather, which takes blocks.
std::vector<const Algorithm*> rows();
/// Of these, those that random schedules choose from, which their numbers count on: every allreduce.
std::vector<const Algorithm*> allreduce_rows();

struct Schedule {
  int ranks = 3;
  const Algorithm* row = nullptr;
  Quorum quorum = Quorum::majority;
  std::uint64_t seed = 1;
  SimFaults faults;
  int slow_rank = -1;  ///< computes for longer than the others wait, before it agrees; -1: nobody
};

/// The schedule of that number: deaths that are told at once, late or never, false news, partitions, a slow rank,
/// messages that overtake each other.
Schedule random_schedule(std::uint64_t number);

/// One job.
struct Report {
  /// What is wrong; empty: nothing. Two ranks that commit different bytes or get different answers of one agreement, a
  /// sum that is wrong, an input that has changed, a rank that neither goes on nor throws excluded, a hang.
  std::string complaint;
  int dead = 0;
  int committed = 0;  ///< ranks, also such that died later
  int excluded = 0;
  std::uint64_t agreements = 0;  ///< of all ranks
};
Report run(const Schedule& schedule);

std::string describe(const Schedule& schedule);

}  // namespace tulle::storm
