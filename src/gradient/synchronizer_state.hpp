// What a Synchronizer holds. Steps are in synchronizer.cpp, going on with other ranks is in membership.cpp.
#pragma once

#include <fmt/format.h>

#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/generations.hpp"
#include "comm/taken_channels.hpp"
#include "gradient/decisions.hpp"
#include "gradient/pipeline.hpp"
#include "gradient/report.hpp"
#include "tulle/base/error.hpp"
#include "tulle/gradient/synchronizer.hpp"

namespace tulle::gradient {

inline std::uint64_t values_of(std::span<const Parameter> parameters) {
  std::uint64_t values = 0;
  for (const Parameter& parameter : parameters) values += parameter.size;
  return values;
}

struct Synchronizer::State {
  State(Communicator given, std::vector<Parameter> registered, const Recipe& recipe, const SynchronizerOptions& options)
      : communicator(std::move(given)),
        parameters(std::move(registered)),
        common{recipe, options, communicator.rank(), communicator.size(), recipe.teams, values_of(parameters)},
        memory(kept_arrays_of(recipe) * parameters.size(),
               options.phantoms ? 0 : kept_arrays_of(recipe) * common.values),
        control(communicator.channel(options.first_channel + static_cast<std::uint32_t>(parameters.size()))) {
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const Communicator channel = communicator.channel(options.first_channel + static_cast<std::uint32_t>(i));
      pipelines.push_back(std::make_unique<Pipeline>(common, parameters[i], channel, memory));
    }
    fuse();
    const std::size_t number = parameters.size() + 1 + groups.size();
    end_channel = options.first_channel + static_cast<std::uint32_t>(number) + 2;  // the last one is for a StepLog
    decisions.emplace(common, communicator.channel(end_channel - 2), pipelines);
    taken_channels = take_channels(communicator);
  }

  /// Throws bad_input where another one has some of them.
  TakenChannels take_channels(const Communicator& of) const;

  /// Packs what is small, in the order of registration. Depends on what ranks have agreed on alone.
  void fuse();
  void pack(std::span<Pipeline* const> members);

  Pipeline& at(ParameterId parameter) {
    if (parameter < pipelines.size()) return *pipelines[parameter];
    throw Error(ErrorKind::bad_input,
                fmt::format("there is no parameter {}; {} were registered", parameter, pipelines.size()));
  }

  SavedState saved() const;
  /// Sorts what was saved by what is registered. Throws bad_input where a name is missing.
  void put_in_order(SavedState& saved) const;
  /// What this rank shall go on from. Throws bad_input where it does not fit.
  SavedState fitting(std::span<const Buffer> states) const;
  /// REQUIRES: it fits.
  void restore(const SavedState& saved);

  Communicator communicator;
  std::vector<Parameter> parameters;
  Common common;
  KeptMemory memory;     ///< of the pipelines
  Communicator control;  ///< a channel for what parameters have in common
  std::vector<std::unique_ptr<FusedGroup>> groups;
  std::vector<std::unique_ptr<Pipeline>> pipelines;
  std::optional<Decisions> decisions;  ///< set once the groups are known
  std::uint32_t end_channel = 0;
  TakenChannels taken_channels;
  PoolVector<bool> is_begun;  ///< in this step: started or skipped
  PoolVector<float> wide;     ///< a 16-bit gradient as f32
  std::uint64_t steps = 0;
  std::uint64_t local_steps = 0;
  std::uint64_t run = 0;    ///< in files that are written; drawn for the first, and anew after a load
  GenerationWriter writer;  ///< of these files
  Totals totals;
  Request<std::vector<double>> replica_check;
  std::uint64_t replica_check_step = 0;
  Request<void> weights_check;
  std::uint64_t weights_check_step = 0;

  std::uint64_t completed = 0;              ///< steps
  std::size_t finished = 0;                 ///< parameters of the step that is not completed
  std::uint64_t local_steps_after[2] = {};  ///< an even and an odd number of completed steps
  double residual_squares = 0;              ///< of parameters that finished in this step
  double residual_norm = 0;                 ///< after the last completed step
  std::vector<KnownResidual> known;         ///< by rank; empty: nothing is known

  /// Throws bad_input where steps overlap and could not be undone.
  void require_orderly(const Pipeline& pipeline) const;
  void note_finished(const ParameterStats& stats);
  void require_kept(std::uint64_t completed_steps) const;
  Task<> number_run();
  Task<> abandon();
  void roll_back(std::uint64_t completed_steps);
  void move_to(Communicator next);
  /// What a newcomer takes over: what is the same on every rank.
  SavedState common_state() const;
  /// Takes over what another rank's common_state() gave. REQUIRES: nothing was started yet.
  void take_over(SavedState given);

  void start(ParameterId parameter, const Given& given);
  void note_started(ParameterId parameter);
  /// What every finish() does before it waits: the checks of replicas and weights that are due.
  Task<> check_replicas();
  double whole_step_seconds() const;
  void start_replica_check();
  void start_weights_check(std::span<const std::uint64_t> hashes);
  void compare_replicas(std::span<const double> largest);
};

}  // namespace tulle::gradient
