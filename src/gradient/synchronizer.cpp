#include "tulle/gradient/synchronizer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "gradient/agreement.hpp"
#include "gradient/checkpoint_files.hpp"
#include "gradient/exchange_model.hpp"
#include "gradient/policy.hpp"
#include "gradient/synchronizer_state.hpp"
#include "tulle/base/error.hpp"
#include "tulle/comm/control.hpp"
#include "tulle/comm/settings.hpp"

namespace tulle::gradient {
namespace {

void check_names(std::span<const Parameter> parameters) {
  std::set<std::string_view> names;
  for (const Parameter& parameter : parameters) {
    if (parameter.name.empty()) throw Error(ErrorKind::bad_input, "a parameter has no name");
    if (parameter.rows > 0 && parameter.size % parameter.rows != 0) {
      throw Error(ErrorKind::bad_input, fmt::format("{} has {} values, which {} rows do not divide", parameter.name,
                                                    parameter.size, parameter.rows));
    }
    if (names.insert(parameter.name).second) continue;
    throw Error(ErrorKind::bad_input, fmt::format("two parameters are called {}", parameter.name));
  }
}

// Widens to f32, in memory that the synchronizer keeps.
template <class V>
std::span<const float> widened(std::span<const V> values, PoolVector<float>& memory) {
  memory.resize(std::max(memory.size(), values.size()));
  std::ranges::transform(values, memory.begin(), [](V value) { return static_cast<float>(value); });
  return std::span<const float>(memory).first(values.size());
}

}  // namespace

// Those that always travel whole have groups of their own, so that a group makes one sum; exact ones and coded ones do
// not share it. Where each may travel whole at times they are packed as if all did.
void Synchronizer::State::fuse() {
  const auto is_small = [&](const Pipeline& pipeline) {
    return pipeline.can_join() && pipeline.parameter().size < common.options.fuse_below;
  };
  std::vector<Pipeline*> exact, coded, others;
  for (const auto& pipeline : pipelines) {
    if (!is_small(*pipeline)) continue;
    const bool is_whole = common.recipe.adaptive || pipeline->is_always_dense();
    const bool is_exact = pipeline->dense_codec().coding == ValueCoding::raw;
    (!is_whole ? others : is_exact ? exact : coded).push_back(pipeline.get());
  }
  pack(exact);
  pack(coded);
  pack(others);
}

void Synchronizer::State::pack(std::span<Pipeline* const> members) {
  if (members.size() < 2) return;
  const std::uint64_t most_values = std::min<std::uint64_t>(common.options.fuse_values, FusedGroup::kMostValues);
  FusedGroup* group = nullptr;
  for (Pipeline* const pipeline : members) {
    if (group == nullptr || group->size() + pipeline->parameter().size > most_values) {
      const std::size_t number = parameters.size() + 1 + groups.size();
      const auto channel = common.options.first_channel + static_cast<std::uint32_t>(number);
      groups.push_back(std::make_unique<FusedGroup>(communicator.channel(channel), common.values));
      group = groups.back().get();
    }
    pipeline->join(*group);
  }
}

TakenChannels Synchronizer::State::take_channels(const Communicator& of) const {
  const std::string first = parameters.empty() ? "" : fmt::format(", the first called {}", parameters.front().name);
  const std::string owner = fmt::format("a synchronizer of {} parameters{}", parameters.size(), first);
  return {of, common.options.first_channel, end_channel, owner};
}

Synchronizer::Synchronizer(std::unique_ptr<State> state) : state_(std::move(state)) {
  state_->is_begun.resize(state_->pipelines.size());
}
Synchronizer::Synchronizer(Synchronizer&&) noexcept = default;
Synchronizer& Synchronizer::operator=(Synchronizer&&) noexcept = default;
Synchronizer::~Synchronizer() = default;

Synchronizer Synchronizer::make(Communicator communicator, std::vector<Parameter> parameters, const Recipe& recipe,
                                const SynchronizerOptions& options) {
  return run_task(communicator, await_make(communicator, std::move(parameters), recipe, options));
}

Task<Synchronizer> Synchronizer::await_make(Communicator communicator, std::vector<Parameter> parameters, Recipe recipe,
                                            SynchronizerOptions options) {
  validate(recipe);
  if (options.boundaries == Boundaries::measured) require_selector(recipe);
  check_names(parameters);
  Task<> agreement = agree(communicator, parameters, recipe, options);
  co_await agreement;
  if (options.boundaries == Boundaries::measured) {
    Task<LayerBoundaries> measuring = measure_boundaries(communicator, recipe);
    const LayerBoundaries boundaries = co_await measuring;
    recipe.dense_below = boundaries.dense_below;
    recipe.search_from = boundaries.search_from;
  }
  // Another synchronizer may have ended on some ranks only, so that its channels are taken on the others.
  std::unique_ptr<State> state;
  const auto make_state = [&] {
    state = std::make_unique<State>(communicator, std::move(parameters), recipe, options);
  };
  const std::exception_ptr failure = failure_of(make_state);
  Request<void> agreed = ifail_together(communicator, failure);
  co_await agreed;
  co_return Synchronizer(std::move(state));
}

std::span<const Parameter> Synchronizer::parameters() const { return state_->parameters; }
const Recipe& Synchronizer::recipe() const { return state_->common.recipe; }
const Communicator& Synchronizer::communicator() const { return state_->communicator; }
std::uint64_t Synchronizer::steps() const { return state_->steps; }
std::uint32_t Synchronizer::end_channel() const { return state_->end_channel; }

void Synchronizer::start(ParameterId parameter, std::span<const float> gradient, std::span<const float> weights) {
  state_->start(parameter, {gradient, weights, Lending::until_start_returns});
}

void Synchronizer::start_lent(ParameterId parameter, std::span<const float> gradient, std::span<const float> weights) {
  state_->start(parameter, {gradient, weights, Lending::until_finished});
}

void Synchronizer::State::start(ParameterId parameter, const Given& given) {
  require_orderly(at(parameter));
  decisions->before_start(at(parameter));
  at(parameter).start(given);
  note_started(parameter);
}

void Synchronizer::start(ParameterId parameter, std::span<const Half> gradient, std::span<const float> weights) {
  start(parameter, widened(gradient, state_->wide), weights);
}

void Synchronizer::start(ParameterId parameter, std::span<const Bfloat16> gradient, std::span<const float> weights) {
  start(parameter, widened(gradient, state_->wide), weights);
}

void Synchronizer::start_phantom(ParameterId parameter) {
  state_->decisions->before_start(state_->at(parameter));
  state_->at(parameter).start_phantom();
  state_->note_started(parameter);
}

void Synchronizer::skip(ParameterId parameter) {
  state_->require_orderly(state_->at(parameter));
  state_->decisions->before_start(state_->at(parameter));
  state_->at(parameter).skip();
  state_->note_started(parameter);
}

void Synchronizer::State::note_started(ParameterId parameter) {
  is_begun[parameter] = true;
  decisions->after_start();
}

void Synchronizer::end_step() {
  for (ParameterId parameter = 0; parameter < state_->pipelines.size(); ++parameter) {
    if (!state_->is_begun[parameter]) skip(parameter);
    state_->is_begun[parameter] = false;
  }
  state_->steps += 1;
  state_->start_replica_check();
}

bool Synchronizer::test(ParameterId parameter) { return state_->at(parameter).test(); }

Update Synchronizer::finish(ParameterId parameter) { return run_task(state_->communicator, await_finish(parameter)); }
Task<Update> Synchronizer::await_finish(ParameterId parameter) {
  const double began = state_->decisions->before_finish();
  Task<> checking = state_->check_replicas();
  co_await checking;
  Task<Update> finishing = state_->at(parameter).finish();
  Update update = co_await finishing;
  state_->totals.add(state_->parameters[parameter], state_->at(parameter).stats());
  if (state_->decisions->are_needed()) {
    Task<> deciding = state_->decisions->after_finish(began);
    co_await deciding;
  }
  state_->note_finished(state_->at(parameter).stats());
  co_return update;
}

bool Synchronizer::finish_into(ParameterId parameter, std::span<float> update) {
  return run_task(state_->communicator, await_finish_into(parameter, update));
}
Task<bool> Synchronizer::await_finish_into(ParameterId parameter, std::span<float> update) {
  const double began = state_->decisions->before_finish();
  Task<> checking = state_->check_replicas();
  co_await checking;
  Task<bool> finishing = state_->at(parameter).finish_into(update);
  const bool is_applied = co_await finishing;
  state_->totals.add(state_->parameters[parameter], state_->at(parameter).stats());
  if (state_->decisions->are_needed()) {
    Task<> deciding = state_->decisions->after_finish(began);
    co_await deciding;
  }
  state_->note_finished(state_->at(parameter).stats());
  co_return is_applied;
}

Task<> Synchronizer::State::check_replicas() {
  if (weights_check.valid() && weights_check_step < steps) co_await weights_check;
  if (!replica_check.valid() || replica_check_step >= steps) co_return;
  const std::vector<double> largest = co_await replica_check;
  compare_replicas(largest);
}

// Before the last step nothing is in flight any more, so that all ranks speak of the same updates.
void Synchronizer::State::start_replica_check() {
  const std::uint64_t every = common.options.replica_check_every;
  if (every == 0 || steps % every != 0 || replica_check.valid()) return;
  std::vector<double> sides;
  for (const auto& pipeline : pipelines) {
    const double checksum = pipeline->checksum_after(steps - 1);
    sides.insert(sides.end(), {checksum, -checksum});
  }
  if (common.options.residual_norms) {
    sides.resize(sides.size() + static_cast<std::size_t>(common.ranks));
    sides[2 * pipelines.size() + static_cast<std::size_t>(common.rank)] = residual_norm;
  }
  replica_check = icombine(control, sides, Op::max());
  replica_check_step = steps;
}

void Synchronizer::State::compare_replicas(std::span<const double> largest) {
  known.clear();
  for (const double norm : largest.subspan(2 * pipelines.size())) known.push_back({norm, replica_check_step - 1});
  for (std::size_t i = 0; i < pipelines.size(); ++i) {
    if (largest[2 * i] == -largest[2 * i + 1]) continue;
    throw Error(ErrorKind::mismatch,
                fmt::format("replicas differ: ranks were given different updates of {} in the first "
                            "{} steps",
                            parameters[i].name, replica_check_step - 1));
  }
}

bool Synchronizer::wants_weights() const {
  const std::uint64_t every = state_->common.options.weights_check_every;
  return every > 0 && state_->steps % every == 0;
}

void Synchronizer::compare_weights(std::span<const std::uint64_t> hashes) { state_->start_weights_check(hashes); }

void Synchronizer::State::start_weights_check(std::span<const std::uint64_t> hashes) {
  if (hashes.size() != parameters.size()) {
    throw Error(ErrorKind::bad_input,
                fmt::format("{} hashes of weights for {} parameters", hashes.size(), parameters.size()));
  }
  std::vector<Setting> settings;
  for (std::size_t i = 0; i < hashes.size(); ++i)
    settings.push_back({parameters[i].name, fmt::format("{:x}", hashes[i])});
  weights_check = irequire_same_settings(
      control, settings,
      {.problem = fmt::format("replicas differ: after {} steps the hash of the weights of a parameter is not the same "
                              "on all ranks",
                              steps),
       .remedy = "let nothing but updates change weights, and start all ranks from the same ones"});
  weights_check_step = steps;
}

std::string Synchronizer::report() { return run_task(state_->communicator, await_report()); }
Task<std::string> Synchronizer::await_report() {
  Task<std::string> reporting =
      report_of(state_->control, state_->common.recipe, state_->totals, state_->whole_step_seconds());
  std::string text = co_await reporting;
  co_return text + state_->decisions->text();
}

// By the model, with the groups that there are.
double Synchronizer::State::whole_step_seconds() const {
  double seconds = 0;
  for (const auto& group : groups) seconds += whole_exchange_seconds(communicator, ChoiceBy::profile, group->size());
  for (const auto& pipeline : pipelines) {
    if (!pipeline->is_fused())
      seconds += whole_exchange_seconds(communicator, ChoiceBy::profile, pipeline->parameter().size);
  }
  return seconds;
}

void Synchronizer::step(std::span<const std::span<float>> gradients) {
  Task<> stepping = await_step(gradients);
  run_task(state_->communicator, stepping);
}

Task<> Synchronizer::await_step(std::span<const std::span<float>> gradients) {
  if (gradients.size() != state_->pipelines.size()) {
    throw Error(ErrorKind::bad_input,
                fmt::format("{} gradients for {} parameters", gradients.size(), state_->pipelines.size()));
  }
  const auto has_gradient = [&](ParameterId id) {
    return !gradients[id].empty() || state_->pipelines[id]->parameter().size == 0;
  };
  for (ParameterId id = 0; id < gradients.size(); ++id) {
    if (has_gradient(id)) start(id, std::span<const float>(gradients[id]));
  }
  end_step();
  for (ParameterId id = 0; id < gradients.size(); ++id) {
    if (has_gradient(id)) {
      Task<bool> finishing = await_finish_into(id, gradients[id]);
      co_await finishing;
    } else {
      Task<Update> finishing = await_finish(id);
      co_await finishing;
    }
  }
}

bool Synchronizer::count_local_step() {
  state_->local_steps += 1;
  return state_->local_steps % state_->common.recipe.every == 0;
}

SavedState Synchronizer::State::saved() const {
  SavedState saved{.rank = static_cast<std::uint64_t>(common.rank),
                   .ranks = static_cast<std::uint64_t>(common.ranks),
                   .steps = steps,
                   .local_steps = local_steps,
                   .run = run,
                   .recipe = to_string(common.recipe),
                   .decisions = decisions->saved()};
  for (const auto& pipeline : pipelines) saved.parameters.push_back(pipeline->saved());
  return saved;
}

// Parameters go by their names. What ranks decided about layers goes by their order, and starts anew in another one.
void Synchronizer::State::put_in_order(SavedState& saved) const {
  if (std::ranges::equal(saved.parameters, parameters, {}, &SavedParameter::name, &Parameter::name)) return;
  std::vector<SavedParameter> in_order;
  for (const Parameter& parameter : parameters) {
    const auto found = std::ranges::find(saved.parameters, parameter.name, &SavedParameter::name);
    if (found == saved.parameters.end()) {
      throw Error(ErrorKind::bad_input, fmt::format("the state has no parameter called {}", parameter.name));
    }
    in_order.push_back(*found);
  }
  saved.parameters = std::move(in_order);
  saved.decisions.clear();
}

SavedState Synchronizer::State::fitting(std::span<const Buffer> states) const {
  const auto rank = static_cast<std::uint64_t>(common.rank), ranks = static_cast<std::uint64_t>(common.ranks);
  std::vector<SavedState> old;
  for (const Buffer& bytes : states) old.push_back(decode_state(bytes));
  const auto is_own = [&](const SavedState& state) { return state.rank == rank && state.ranks == ranks; };
  const auto own = std::ranges::find_if(old, is_own);
  if (own == old.end() && old.size() == 1 && old.front().ranks == ranks) {
    throw Error(ErrorKind::bad_input, fmt::format("the state is that of rank {} of {}, and this is rank {}: files of "
                                                  "ranks were swapped, or copied for one another",
                                                  old.front().rank, ranks, rank));
  }
  const double factor = pending_factor(common.recipe.aggregate, static_cast<int>(old.size()), common.ranks);
  SavedState saved = own != old.end() ? std::move(*own) : resharded(old, {rank, ranks, factor});
  if (saved.parameters.size() != pipelines.size()) {
    throw Error(ErrorKind::bad_input, fmt::format("the state is of {} parameters, and {} are registered",
                                                  saved.parameters.size(), pipelines.size()));
  }
  put_in_order(saved);
  for (std::size_t i = 0; i < pipelines.size(); ++i) pipelines[i]->require_fits(saved.parameters[i]);
  decisions->check(saved.decisions);
  return saved;
}

void Synchronizer::State::restore(const SavedState& saved) {
  steps = saved.steps;
  local_steps = saved.local_steps;
  completed = steps;
  finished = 0;
  is_begun.assign(is_begun.size(), false);
  std::ranges::fill(local_steps_after, local_steps);
  for (std::size_t i = 0; i < pipelines.size(); ++i) pipelines[i]->restore(saved.parameters[i]);
  decisions->restore(saved.decisions);
}

Buffer Synchronizer::save_state() const { return encode_state(state_->saved()); }
void Synchronizer::load_state(std::span<const Buffer> states) { state_->restore(state_->fitting(states)); }

void Synchronizer::save_checkpoint(const std::string& path, CheckpointFiles files, const WritePart& write) {
  Task<> saving = await_save_checkpoint(path, files, write);
  run_task(state_->communicator, saving);
}

// What is trained from a checkpoint twice is two runs. Newcomers have no number yet.
Task<> Synchronizer::State::number_run() {
  if (run == 0 && common.rank == 0) run = draw_run_number();
  const double mine[] = {static_cast<double>(run)};
  Request<std::vector<double>> agreeing = icombine(control, mine, Op::max());
  const std::vector<double> agreed = co_await agreeing;
  run = static_cast<std::uint64_t>(agreed[0]);
}

Task<> Synchronizer::await_save_checkpoint(std::string path, CheckpointFiles files, WritePart write) {
  Task<> numbering = state_->number_run();
  co_await numbering;
  StateToWrite state{.bytes = {}, .what = {.run = state_->run, .step = state_->steps}};
  const std::exception_ptr failure = failure_of([&] { state.bytes = save_state(); });
  Request<void> agreement = ifail_together(state_->control, failure);
  co_await agreement;
  Task<> writing = files == CheckpointFiles::one_for_all
                       ? write_one_for_all(state_->control, path, state, write, state_->writer)
                       : write_one_per_rank(state_->control, path, state, state_->writer);
  co_await writing;
}

std::string Synchronizer::load_checkpoint(const std::string& path) {
  Task<std::string> loading = await_load_checkpoint(path);
  return run_task(state_->communicator, std::move(loading));
}

Task<std::string> Synchronizer::await_load_checkpoint(std::string path) {
  Task<ReadStates> reading = read_states(state_->control, path);
  ReadStates read = co_await reading;
  SavedState saved;
  const std::exception_ptr failure = failure_of([&] { saved = state_->fitting(read.states); });
  Request<void> agreement = ifail_together(state_->control, failure);
  co_await agreement;
  state_->restore(saved);
  state_->run = 0;
  state_->writer.goes_on_from(std::move(read.on_disk), read.what);
  co_return read.note;
}

std::span<const float> Synchronizer::residual(ParameterId parameter) const { return state_->at(parameter).residual(); }
std::span<const float> Synchronizer::momentum(ParameterId parameter) const { return state_->at(parameter).velocity(); }
std::span<const float> Synchronizer::outer_momentum(ParameterId parameter) const {
  return state_->at(parameter).outer_momentum();
}
std::vector<PlanRow> Synchronizer::plan() const {
  std::vector<PlanRow> rows;
  for (const auto& pipeline : state_->pipelines) rows.push_back(pipeline->plan());
  return rows;
}
std::string Synchronizer::plan_text() const {
  return text_of_plan(plan(), recipe(), state_->common.options.boundaries);
}

const ParameterStats& Synchronizer::stats(ParameterId parameter) const { return state_->at(parameter).stats(); }

}  // namespace tulle::gradient
