#include "measure/trace_simulation.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "measure/random_values.hpp"
#include "measure/traced_device.hpp"
#include "measure/traced_gradients.hpp"
#include "measure/traced_server.hpp"
#include "tulle/base/error.hpp"
#include "tulle/comm/control.hpp"

namespace tulle::measure {
namespace {

constexpr std::string_view kDense = "dense";
// Virtual time may be long: a slow network is not a fault.
constexpr double kDeadlineSeconds = 1e9;

std::vector<std::string> with_dense(std::vector<std::string> recipes) {
  if (std::ranges::find(recipes, kDense) == recipes.end()) recipes.emplace(recipes.begin(), kDense);
  return recipes;
}

// What a training comes to once its first steps are over.
gradient::Recipe settled(const std::string& text) {
  gradient::Recipe recipe = gradient::parse_recipe(text);
  recipe.warm_up = gradient::WarmUp::none;
  recipe.warm_up_steps = 0;
  return recipe;
}

// A rank holds gradient, accumulator, what is under way and the update, and what momenta the recipe has.
double real_bytes(const TraceSpec& spec, const gradient::Recipe& recipe) {
  const bool has_outer = recipe.outer != gradient::OuterStep::none && recipe.outer != gradient::OuterStep::sgd;
  const double arrays = 4 + (recipe.momentum != 0 ? 1 : 0) + (has_outer ? 1 : 0);
  return arrays * sizeof(float) * static_cast<double>(spec.trace.values()) * spec.options.ranks;
}

bool is_phantom(const TraceSpec& spec, const gradient::Recipe& recipe) {
  if (spec.servers > 0) return false;
  if (spec.rule.data != SimData::automatic) return spec.rule.data == SimData::phantom;
  return real_bytes(spec, recipe) > spec.rule.memory_bytes;
}

// One rank's training.
class TracedRank {
 public:
  TracedRank(Communicator& communicator, const TraceSpec& spec, const gradient::Recipe& recipe,
             const std::vector<float>& common)
      : communicator_(communicator),
        spec_(spec),
        recipe_(recipe),
        device_(communicator, spec),
        ids_(static_cast<gradient::ParameterId>(spec.trace.parameters.size())) {
    if (!common.empty()) gradients_.emplace(common, spec, communicator.rank());
    if (recipe.weight_decay != 0) weights_.resize(common.size());
  }

  Task<TracedStep> run() {
    std::vector<gradient::Parameter> parameters;
    for (const gradient::TracedParameter& traced : spec_.trace.parameters) parameters.push_back(traced.parameter);
    // What recipes decide by the clock they would decide by the processor's, which is not the simulation's.
    const bool decides = recipe_.adaptive || recipe_.energy > 0;
    const gradient::SynchronizerOptions options{.seed = spec_.options.seed,
                                                .reproducible = decides,
                                                .deadline_seconds = kDeadlineSeconds,
                                                .phantoms = !gradients_};
    Task<gradient::Synchronizer> making =
        gradient::Synchronizer::await_make(communicator_, std::move(parameters), recipe_, options);
    synchronizer_.emplace(co_await making);
    TracedStep sum;
    for (int step = 0; step < spec_.warmup + spec_.steps; ++step) {
      if (gradients_) gradients_->begin_step(step);
      Request<void> meeting = ibarrier(communicator_);
      co_await meeting;
      Task<TracedStep> stepping = run_step();
      const TracedStep one = co_await stepping;
      if (step >= spec_.warmup) sum.add(one, spec_.steps);
    }
    co_return sum;
  }

 private:
  Task<TracedStep> run_step() {
    TracedStep step;
    const double began = device_.now(), busy = device_.busy_seconds();
    Task<> forward = device_.work(spec_.trace.forward_seconds, step.compute_seconds);
    co_await forward;
    for (gradient::ParameterId left = ids_; left > 0; --left) {
      Task<> back = device_.work(spec_.trace.parameters[left - 1].backward_seconds, step.compute_seconds);
      co_await back;
      if (!spec_.trace.overlap) continue;
      Task<> starting = start(left - 1, step);
      co_await starting;
    }
    for (gradient::ParameterId left = ids_; left > 0 && !spec_.trace.overlap; --left) {
      Task<> starting = start(left - 1, step);
      co_await starting;
    }
    synchronizer_->end_step();
    for (gradient::ParameterId id = 0; id < ids_; ++id) {
      Task<> finishing = finish(id, step);
      co_await finishing;
    }
    step.seconds = device_.now() - began;
    step.exposed_seconds = step.seconds - (device_.busy_seconds() - busy);
    co_return step;
  }

  Task<> start(gradient::ParameterId id, TracedStep& step) {
    const gradient::Parameter& parameter = spec_.trace.parameters[id].parameter;
    const double seconds = device_.pack_seconds(recipe_, parameter, synchronizer_->stats(id));
    Task<> packing = device_.work(seconds, step.pack_seconds);
    co_await packing;
    if (!gradients_) {
      synchronizer_->start_phantom(id);
    } else {
      synchronizer_->start(id, gradients_->of(id), std::span(weights_).first(weights_.empty() ? 0 : parameter.size));
    }
  }

  Task<> finish(gradient::ParameterId id, TracedStep& step) {
    const gradient::Parameter& parameter = spec_.trace.parameters[id].parameter;
    Task<gradient::Update> finishing = synchronizer_->await_finish(id);
    const gradient::Update update = co_await finishing;
    const gradient::ParameterStats& stats = synchronizer_->stats(id);
    step.bytes_sent += static_cast<double>(stats.bytes_sent);
    step.bytes_received += static_cast<double>(stats.bytes_received);
    step.delivered += static_cast<double>(stats.delivered);
    Task<> unpacking = device_.work(device_.unpack_seconds(recipe_, parameter, stats), step.unpack_seconds);
    co_await unpacking;
  }

  Communicator& communicator_;
  const TraceSpec& spec_;
  const gradient::Recipe& recipe_;
  TracedDevice device_;
  gradient::ParameterId ids_;
  std::optional<gradient::Synchronizer> synchronizer_;
  std::optional<TracedGradients> gradients_;  // none: phantoms
  std::vector<float> weights_;                // all 0
};

Task<> run_traced(Communicator& communicator, const TraceSpec& spec, const gradient::Recipe& recipe,
                  const std::vector<float>& common, std::vector<TracedStep>& steps) {
  TracedRank rank(communicator, spec, recipe, common);
  Task<TracedStep> running = rank.run();
  const TracedStep step = co_await running;
  steps.push_back(step);
}

// Ranks that were measured, in any order. `common`: see TracedGradients; empty: phantoms.
std::vector<TracedStep> run_world(const TraceSpec& spec, const gradient::Recipe& recipe,
                                  const std::vector<float>& common) {
  SimOptions options = spec.options;
  Profile machine = spec.computes ? spec.trace.machine : free_computation();
  machine.alpha_seconds = options.profile.alpha_seconds;
  machine.beta_seconds_per_byte = options.profile.beta_seconds_per_byte;
  options.profile = machine;
  options.ranks += spec.servers;
  SimWorld world(options);
  std::vector<TracedStep> steps;
  if (spec.servers > 0) {
    world.run([&](Communicator& communicator) { return run_with_server(communicator, spec, recipe, common, steps); });
  } else {
    world.run([&](Communicator& communicator) { return run_traced(communicator, spec, recipe, common, steps); });
  }
  return steps;
}

TraceRow row_of(const TraceSpec& spec, const std::string& text, std::vector<float>& common) {
  const gradient::Recipe recipe = settled(text);
  TraceRow row{.recipe = text, .every = recipe.every, .is_phantom = is_phantom(spec, recipe)};
  if (!row.is_phantom && common.empty()) {
    common = random_values(spec.trace.values(), Distribution::gaussian, spec.options.seed);
  }
  for (const TracedStep& step : run_world(spec, recipe, row.is_phantom ? std::vector<float>() : common)) {
    const auto steps = static_cast<double>(row.every);
    const double local = (steps - 1) * step.compute_seconds;  // steps that exchange nothing
    row.seconds = std::max(row.seconds, (local + step.seconds) / steps);
    row.exposed_seconds += step.exposed_seconds / steps / spec.options.ranks;
    row.bytes_sent = std::max(row.bytes_sent, step.bytes_sent / steps);
    row.bytes_received = std::max(row.bytes_received, step.bytes_received / steps);
    row.compute_seconds = std::max(row.compute_seconds, step.compute_seconds);
    row.pack_seconds = std::max(row.pack_seconds, step.pack_seconds / steps);
    row.unpack_seconds = std::max(row.unpack_seconds, step.unpack_seconds / steps);
    row.density = step.delivered / static_cast<double>(spec.trace.values());
  }
  return row;
}

}  // namespace

std::uint64_t rows_of(const TraceSpec& spec) { return with_dense(spec.recipes).size(); }

std::vector<TraceRow> simulate_trace(const TraceSpec& spec, Progress* progress) {
  if (spec.servers > 0 && spec.rule.data == SimData::phantom) {
    throw Error(ErrorKind::unsupported, "a server has no phantoms: it works on real gradients");
  }
  std::vector<TraceRow> rows;
  std::vector<float> common;  // drawn when the first row needs it
  for (const std::string& text : with_dense(spec.recipes)) {
    if (progress != nullptr) progress->advance(0, fmt::format("{} on {} ranks", text, spec.options.ranks));
    rows.push_back(row_of(spec, text, common));
    if (progress != nullptr) progress->advance(1, text);
  }
  const double dense = std::ranges::find(rows, kDense, &TraceRow::recipe)->seconds;
  for (TraceRow& row : rows) row.speedup = row.seconds > 0 ? dense / row.seconds : 1;
  return rows;
}

}  // namespace tulle::measure
