// How a synchronizer goes on with other ranks: it undoes what not all of them have, and moves to their communicator.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "gradient/agreement.hpp"
#include "gradient/outlast.hpp"
#include "gradient/policy.hpp"
#include "gradient/synchronizer_state.hpp"
#include "tulle/base/error.hpp"
#include "tulle/comm/control.hpp"

namespace tulle::gradient {

// ---------------------------------------------------------------- counting

void Synchronizer::State::require_orderly(const Pipeline& pipeline) const {
  if (!common.options.undo || pipeline.started_steps() <= completed) return;
  throw Error(ErrorKind::bad_input,
              fmt::format("{} starts a step while parameters of the last one are not finished, which could then not "
                          "be undone",
                          pipeline.parameter().name));
}

void Synchronizer::State::note_finished(const ParameterStats& stats) {
  residual_squares += stats.residual_norm * stats.residual_norm;
  finished += 1;
  if (finished < pipelines.size()) return;
  finished = 0;
  completed += 1;
  local_steps_after[completed % 2] = local_steps;
  residual_norm = std::sqrt(residual_squares);
  residual_squares = 0;
}

std::uint64_t Synchronizer::completed_steps() const { return state_->completed; }
bool Synchronizer::can_undo() const { return state_->common.options.undo; }

std::optional<KnownResidual> Synchronizer::known_residual(int rank) const {
  const auto place = static_cast<std::size_t>(rank);
  if (place >= state_->known.size()) return std::nullopt;
  return state_->known[place];
}

// ---------------------------------------------------------------- undoing and moving

void Synchronizer::State::require_kept(std::uint64_t completed_steps) const {
  if (completed_steps > completed) {
    throw Error(ErrorKind::bad_input, fmt::format("step {} is not completed here: go on from the end of step {} or of "
                                                  "the one before it",
                                                  completed_steps, completed));
  }
  for (const auto& pipeline : pipelines) {
    if (pipeline->can_undo(completed_steps)) continue;
    throw Error(ErrorKind::bad_input,
                fmt::format("{} has begun step {} and keeps too little to go back to the end of step {}{}",
                            pipeline->parameter().name, pipeline->started_steps(), completed_steps,
                            common.options.undo ? "" : ": SynchronizerOptions::undo does"));
  }
}

Task<> Synchronizer::State::abandon() {
  const auto is_in_flight = [](const auto& pipeline) { return pipeline->is_in_flight(); };
  if (std::ranges::any_of(pipelines, is_in_flight)) {
    break_communicator(
        communicator,
        Error(ErrorKind::broken, "the synchronizer goes on with another communicator").at_rank(communicator.rank()));
  }
  for (const auto& group : groups) {
    Task<> abandoning = group->abandon();
    co_await abandoning;
  }
  for (const auto& pipeline : pipelines) {
    Task<> abandoning = pipeline->abandon();
    co_await abandoning;
  }
  Task<> deciding = decisions->abandon(), checking = outlast(replica_check), comparing = outlast(weights_check);
  co_await deciding;
  co_await checking;
  co_await comparing;
}

void Synchronizer::State::roll_back(std::uint64_t completed_steps) {
  for (const auto& pipeline : pipelines) pipeline->roll_back(completed_steps);
  decisions->roll_back(completed_steps);
  steps = completed = completed_steps;
  local_steps = local_steps_after[completed % 2];
  finished = 0;
  residual_squares = 0;
  is_begun.assign(is_begun.size(), false);
}

void Synchronizer::State::move_to(Communicator next) {
  const int ranks = common.ranks;
  communicator = std::move(next);
  common.rank = communicator.rank();
  common.ranks = communicator.size();
  common.teams = usable_teams(common.recipe.teams, common.ranks);
  const auto channel = [&](std::size_t number) {
    return communicator.channel(common.options.first_channel + static_cast<std::uint32_t>(number));
  };
  for (std::size_t i = 0; i < pipelines.size(); ++i) pipelines[i]->move_to(channel(i));
  control = channel(pipelines.size());
  for (std::size_t i = 0; i < groups.size(); ++i) groups[i]->move_to(channel(pipelines.size() + 1 + i));
  decisions->move_to(communicator.channel(end_channel - 2));
  known.clear();
  if (common.ranks <= ranks) return;
  const double factor = pending_factor(common.recipe.aggregate, ranks, common.ranks);
  for (const auto& pipeline : pipelines) {
    if (factor != 1) pipeline->scale_pending(static_cast<float>(factor));
    pipeline->begin_anew();
  }
  decisions->begin_anew();
}

void Synchronizer::move_to(Communicator communicator, std::uint64_t completed_steps) {
  Communicator old = state_->communicator;
  Task<> moving = await_move_to(std::move(communicator), completed_steps);
  run_task(old, moving);
}

Task<> Synchronizer::await_move_to(Communicator communicator, std::uint64_t completed_steps) {
  state_->require_kept(completed_steps);
  TakenChannels taken;
  const bool is_elsewhere = communicator.context() != state_->communicator.context();
  if (is_elsewhere) taken = state_->take_channels(communicator);
  Task<> abandoning = state_->abandon();
  co_await abandoning;
  state_->roll_back(completed_steps);
  state_->move_to(std::move(communicator));
  if (is_elsewhere) state_->taken_channels = std::move(taken);
}

// ---------------------------------------------------------------- newcomers

SavedState Synchronizer::State::common_state() const {
  SavedState state = saved();
  state.decisions.clear();
  for (SavedParameter& parameter : state.parameters) {
    parameter.threshold = 0;
    parameter.threshold_age = 0;
    parameter.algorithm.clear();
    parameter.dense_algorithm.clear();
    std::erase_if(parameter.arrays, [](const SavedArray& array) { return !is_replicated(array.name); });
  }
  return state;
}

// What the others hold back is theirs: this rank begins with zeros.
void Synchronizer::State::take_over(SavedState given) {
  const SavedState own = saved();
  if (given.parameters.size() != own.parameters.size()) {
    throw Error(ErrorKind::bad_message, "the state that came is of another number of parameters");
  }
  for (std::size_t i = 0; i < own.parameters.size(); ++i) {
    for (const SavedArray& array : own.parameters[i].arrays) {
      if (is_replicated(array.name)) continue;
      given.storage.emplace_back(array.values.size(), 0.0f);
      given.parameters[i].arrays.push_back({array.name, given.storage.back()});
    }
    pipelines[i]->require_fits(given.parameters[i]);
  }
  restore(given);
}

namespace {

void require_movable(const SynchronizerOptions& options) {
  if (options.boundaries == Boundaries::recipe) return;
  throw Error(ErrorKind::unsupported,
              "ranks that come later cannot measure boundaries again: give them in the recipe, as dense_below and "
              "search_from");
}

}  // namespace

Task<> Synchronizer::await_welcome(Communicator grown, int newcomers) {
  const Common& common = state_->common;
  require_movable(common.options);
  Buffer bytes;
  const std::exception_ptr failure = failure_of([&] { bytes = encode_state(state_->common_state()); });
  Request<void> agreed = ifail_together(grown, failure);
  co_await agreed;
  Task<> comparing = agree(grown, state_->parameters, common.recipe, common.options);
  co_await comparing;
  Request<Buffer> giving = igive_bytes(grown, bytes, grown.size() - newcomers);
  co_await giving;
}

Task<Synchronizer> Synchronizer::await_join(Communicator grown, int newcomers, std::vector<Parameter> parameters,
                                            Recipe recipe, SynchronizerOptions options) {
  validate(recipe);
  require_movable(options);
  Request<void> agreed = ifail_together(grown, nullptr);
  co_await agreed;
  Task<> comparing = agree(grown, parameters, recipe, options);
  co_await comparing;
  Request<Buffer> taking = igive_bytes(grown, {}, grown.size() - newcomers);
  const Buffer bytes = co_await taking;
  Synchronizer made(std::make_unique<State>(grown, std::move(parameters), recipe, options));
  made.state_->common.teams = usable_teams(recipe.teams, grown.size());
  made.state_->take_over(decode_state(bytes));
  co_return made;
}

}  // namespace tulle::gradient
