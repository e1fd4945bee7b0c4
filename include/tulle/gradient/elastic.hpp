// Training that goes on when ranks die, and when new ones come.
//
//   std::vector<float> weights = ...;                                    // the same on all ranks
//   auto synchronizer = tulle::gradient::Synchronizer::make(communicator, parameters, recipe, {.undo = true});
//   tulle::gradient::run_elastic(
//       communicator,
//       {.steps = 10'000, .synchronizer = &synchronizer, .arrays = {std::as_writable_bytes(std::span(weights))}},
//       [&](tulle::Communicator& ranks, std::uint64_t step) {
//         ...   // the gradient of this rank's share of the step's data; synchronizer.step(); weights -= rate * update
//       });
//
// How it works. A step that fails because a rank is lost has ended on some ranks and not on others. The survivors agree
// on how many steps each of them has completed. Where one has it and another has not, it is undone by those who have:
// what a rank took out of its accumulators cannot be worked out by those who lack the sum, but everybody can go back.
// So they go on from the smallest number, on the communicator that shrink() gives, with the same step. Numbers differ
// by one at most, because nobody completes a step that another has not begun. docs/faults.md has the promises.
//
// Threads: one at a time. Programs (coroutines) use await_run_elastic().
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tulle/comm/agree.hpp"
#include "tulle/gradient/synchronizer.hpp"

#pragma GCC visibility push(default)
namespace tulle::gradient {

struct LostRank {
  int rank = 0;                           ///< that it had
  std::optional<KnownResidual> residual;  ///< what it held back, as far as it had said; it is gone
};

/// What hooks are told, on every rank that goes on.
struct MembershipChange {
  std::uint64_t step = 0;      ///< that comes next, counted from 0
  bool is_undone = false;      ///< this rank had begun it: its arrays and its synchronizer are what they were before
  std::vector<int> survivors;  ///< ranks that they had, in the order of those that they have now
  std::vector<LostRank> lost;
  int joined = 0;  ///< new ranks, which follow the others
};

/// Equal on all ranks, except for the memory that it points to.
struct ElasticOptions {
  std::uint64_t steps = 0;               ///< to be completed, in all: a synchronizer's earlier ones count
  Synchronizer* synchronizer = nullptr;  ///< with `undo`, on the communicator; null: the program has none
  /// What else a step changes and must be undone with it: weights, the state of an optimizer. Copied before each step.
  std::vector<std::span<std::byte>> arrays = {};
  /// Where fewer are left, all throw peer_failed; arrays and synchronizer are at the end of a step.
  int least_ranks = 1;
  /// How often a step may fail while nobody is lost: e.g. for a deadline that is too short. Then its error is thrown.
  int most_tries = 3;
  /// Of the agreements. `patience_seconds` must be longer than ranks are apart, e.g. while one computes.
  AgreeOptions agree = {};
  /// The ranks are others now: learning rates, shards of data. Called before the next step, with the communicator that
  /// is used from here on, which it may use; where it throws, that step has failed.
  std::function<void(Communicator&, const MembershipChange&)> on_change = {};
  /// When a multiple of so many steps is completed newcomers are looked for, on all ranks; 0: never.
  std::uint64_t grow_every = 0;
  /// Gives a communicator in which new ranks follow the old ones, or the one that it was given: e.g. admit() of
  /// tulle/comm/admission.hpp. Where it throws an Error the job goes on without newcomers. For run_elastic().
  std::function<Communicator(Communicator&)> grow = {};
  /// The same for await_run_elastic(). REQUIRES: what it gives is on the engine of what it was given, such as a larger
  /// communicator that newcomers were part of all the time.
  std::function<Task<Communicator>(Communicator&)> await_grow = {};
};

struct ElasticReport {
  std::uint64_t steps = 0;   ///< completed
  std::uint64_t undone = 0;  ///< steps that this rank had begun and then repeated
  int shrinks = 0;           ///< also where nobody was lost
  int joined = 0;
  std::vector<LostRank> lost;
};

/// What a step is, by its number from 0; it is called again for a step that is repeated. REQUIRES: it lets errors of
/// the communicator out; it depends on something of every rank, such as a sum; with a synchronizer, it is one step of
/// that; what else it changes is among the arrays, or is the same when it is done again.
using ElasticStep = std::function<void(Communicator&, std::uint64_t step)>;
using ElasticProgram = std::function<Task<>(Communicator&, std::uint64_t step)>;

/// Calls `step` until so many steps are completed on all ranks that are left. Where one fails with peer_failed,
/// deadline or broken, the survivors agree, shrink, undo what not all of them have, and go on; `communicator` is then
/// the new one. Other errors are thrown on, after the other ranks were told, who go on without this one. At the end
/// ranks agree once more, so that none leaves while another needs it. Throws excluded where the others go on without
/// this rank, and bad_input where options do not go together. Costs a copy of the arrays and what `undo` costs a step;
/// nothing is sent while nobody is lost, but at the end.
ElasticReport run_elastic(Communicator& communicator, const ElasticOptions& options, const ElasticStep& step);
Task<ElasticReport> await_run_elastic(Communicator& communicator, ElasticOptions options, ElasticProgram step);

/// What a process does that join() has made a rank of a job in run_elastic(): takes the synchronizer's common state and
/// the arrays from rank 0, by messages that are checked by CRC, and compares the arrays' CRC with all ranks. Its own
/// residual is 0. Then it calls run_elastic(), which goes on with the step that the others are at. Collective with the
/// other ranks' run_elastic(). Throws what Synchronizer::await_join() throws, and mismatch where arrays have other
/// sizes.
Synchronizer join_elastic(Communicator grown, std::vector<Parameter> parameters, const Recipe& recipe,
                          const SynchronizerOptions& options, std::span<const std::span<std::byte>> arrays);
/// REQUIRES: what `arrays` points to stays until it is over.
Task<Synchronizer> await_join_elastic(Communicator grown, std::vector<Parameter> parameters, Recipe recipe,
                                      SynchronizerOptions options, std::span<const std::span<std::byte>> arrays);

}  // namespace tulle::gradient
#pragma GCC visibility pop
