#include "gradient/decisions.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "gradient/exchange_model.hpp"
#include "gradient/outlast.hpp"
#include "tulle/base/error.hpp"
#include "tulle/comm/control.hpp"

namespace tulle::gradient {
namespace {

using Json = nlohmann::json;

double share_of(std::uint64_t part, std::uint64_t all) {
  return all == 0 ? 0 : static_cast<double>(part) / static_cast<double>(all);
}

// What the layer's exchange takes by the recipe: by itself, or as its share of what its group's takes.
double recipe_seconds(const Communicator& communicator, ChoiceBy by, const Recipe& recipe, const Pipeline& layer,
                      double density) {
  const Parameter& parameter = layer.parameter();
  const std::uint64_t together = layer.can_join_selections() ? layer.group_size() : 0;
  if (together == 0) return recipe_exchange_seconds(communicator, by, recipe, parameter, density);
  const Parameter group{.name = parameter.name, .size = together, .role = parameter.role};
  return recipe_exchange_seconds(communicator, by, recipe, group, density) * share_of(parameter.size, together);
}

double whole_seconds(const Communicator& communicator, ChoiceBy by, const Pipeline& layer) {
  const std::uint64_t size = layer.parameter().size, together = std::max(layer.group_size(), size);
  return whole_exchange_seconds(communicator, by, together) * share_of(size, together);
}

// Of a layer by cost functions. Where nothing is measured, what selecting takes comes from the profile.
LayerSeconds model_of(const Communicator& communicator, const Common& common, const Pipeline& layer) {
  const Recipe& recipe = common.recipe;
  const ChoiceBy by = choice_by(common.options.reproducible);
  LayerSeconds model{recipe_seconds(communicator, by, recipe, layer, recipe.density),
                     whole_seconds(communicator, by, layer)};
  if (common.options.reproducible && recipe.selector != "none") {
    const Profile profile = choice_basis(communicator, by).profile;
    model.recipe += profile.gamma_select_seconds * static_cast<double>(layer.parameter().size);
  }
  return model;
}

}  // namespace

Decisions::Decisions(const Common& common, const Communicator& channel, Pipelines pipelines)
    : common_(common),
      channel_(channel),
      pipelines_(pipelines),
      is_adaptive_(common.recipe.adaptive),
      follows_energy_(common.recipe.energy > 0) {
  for (const auto& pipeline : pipelines_) {
    if (!pipeline->is_always_dense()) layers_.push_back(pipeline.get());
  }
  if (!are_needed()) return;
  begin_plan();
  tell_pipelines();
}

void Decisions::begin_plan() {
  densities_.assign(layers_.size(), common_.recipe.density);
  if (!is_adaptive_) return;
  std::vector<LayerSeconds> models;
  for (const Pipeline* const layer : layers_) models.push_back(model_of(channel_, common_, *layer));
  plan_.emplace(std::move(models), common_.options.reproducible);
}

void Decisions::tell_pipelines() {
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    PipelineDecision decision{.density = densities_[i]};
    if (plan_) {
      decision.is_whole = plan_->is_whole(i);
      decision.seconds = plan_->layer_seconds(i);
    }
    layers_[i]->decide(decision);
  }
}

bool Decisions::warms_up() const { return ended_steps_ < common_.recipe.warm_up_steps; }

void Decisions::before_start(const Pipeline& pipeline) {
  if (!are_needed()) return;
  if (pipeline.started_steps() > ended_steps_) {
    throw Error(ErrorKind::bad_input,
                fmt::format("{} starts a step while parameters of the last one are not finished, from which recipes "
                            "with adaptive or energy decide",
                            pipeline.parameter().name));
  }
  if (started_ == 0 && common_.options.undo) journal_.begin(ended_steps_) = {plan_, densities_};
  entered_seconds_ = seconds();
}

void Decisions::after_start() {
  if (!are_needed()) return;
  started_ += 1;
  if (started_ == pipelines_.size()) {
    const double since_first = entered_seconds_ - first_start_seconds_;
    const double inside = inside_seconds_ - inside_at_first_start_;
    back_propagation_seconds_ = started_ > 1 ? std::max(0.0, since_first - inside) : 0;
    if (follows_energy_) begin_sum_of_densities();
  }
  inside_seconds_ += seconds() - entered_seconds_;
  if (started_ != 1) return;
  first_start_seconds_ = seconds();
  inside_at_first_start_ = inside_seconds_;
}

// For each layer the density that this rank would need, and whether it had a gradient to tell.
void Decisions::begin_sum_of_densities() {
  std::vector<double> numbers = {back_propagation_seconds_};
  for (const Pipeline* const layer : layers_) {
    const double wanted = layer->energy_density();
    numbers.insert(numbers.end(), {wanted, wanted > 0 ? 1.0 : 0.0});
  }
  densities_sum_ = icombine(channel_, numbers, Op::sum());
}

Task<> Decisions::after_finish(double began_seconds) {
  if (!are_needed()) co_return;
  inside_seconds_ += seconds() - began_seconds;
  finished_ += 1;
  if (finished_ < pipelines_.size()) co_return;
  if (densities_sum_.valid()) {
    const std::vector<double> sums = co_await densities_sum_;
    decide_densities(sums);
  }
  if (plan_ && !warms_up()) {
    Task<> deciding = decide_ways();
    co_await deciding;
  }
  ended_steps_ += 1;
  started_ = finished_ = 0;
  inside_seconds_ = 0;
  tell_pipelines();
}

// On a virtual clock computing takes no time, and the processor's says nothing about a rank.
std::vector<double> Decisions::computing_seconds() const {
  std::vector<double> computing;
  const bool is_virtual = channel_.engine()->transport().name() == "sim";
  for (const Pipeline* const layer : layers_) {
    const ParameterStats& stats = layer->stats();
    const double seconds = stats.accumulate_seconds + stats.select_seconds + stats.encode_seconds +
                           stats.decode_seconds + stats.mask_seconds + stats.apply_seconds;
    computing.push_back(is_virtual ? 0 : seconds);
  }
  return computing;
}

Task<> Decisions::decide_ways() {
  const std::vector<double> computing = computing_seconds();
  if (!plan_->note(inside_seconds_, computing)) co_return;
  const std::vector<double> mine = plan_->numbers();
  Request<std::vector<double>> adding = icombine(channel_, mine, Op::sum());
  const std::vector<double> sums = co_await adding;
  plan_->decide(sums, common_.ranks);
}

double Decisions::exchange_seconds(std::span<const double> densities) const {
  double seconds = 0;
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    seconds +=
        recipe_seconds(channel_, choice_by(common_.options.reproducible), common_.recipe, *layers_[i], densities[i]);
  }
  return seconds;
}

// A layer that keeps its energy with less than the recipe's density gets less. Where it would take more, it gets as
// much more as exchanges can take while back-propagation runs; times are nearly linear in densities.
void Decisions::decide_densities(std::span<const double> sums) {
  std::vector<double> least = densities_, wanted = densities_;
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const double had_gradients = sums[2 + 2 * i];
    if (had_gradients > 0) wanted[i] = std::min(1.0, sums[1 + 2 * i] / had_gradients);
    least[i] = std::min(wanted[i], common_.recipe.density);
  }
  double share = 1;
  if (!common_.options.reproducible && wanted != least) {
    const double window = sums[0] / common_.ranks;
    const double least_seconds = exchange_seconds(least), wanted_seconds = exchange_seconds(wanted);
    if (wanted_seconds > least_seconds) {
      share = std::clamp((window - least_seconds) / (wanted_seconds - least_seconds), 0.0, 1.0);
    }
  }
  for (std::size_t i = 0; i < layers_.size(); ++i) densities_[i] = least[i] + share * (wanted[i] - least[i]);
}

std::string Decisions::text() const {
  std::string text;
  if (follows_energy_ && !layers_.empty()) {
    const auto [least, most] = std::ranges::minmax(densities_);
    text += fmt::format("energy           {:.3g} of it needs {:.3g} to {:.3g} % of a layer's values\n",
                        common_.recipe.energy, 100 * least, 100 * most);
  }
  if (!plan_) return text;
  std::string names;
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    if (!plan_->is_whole(i)) continue;
    const LayerSeconds seconds = plan_->layer_seconds(i);
    names += fmt::format("                 {}: whole {:.3g} ms, by the recipe {:.3g} ms\n",
                         layers_[i]->parameter().name, 1e3 * seconds.whole, 1e3 * seconds.recipe);
  }
  const AdaptivePlan::WaySeconds& seconds = plan_->way_seconds();
  const auto milliseconds = [](double value) { return value > 0 ? fmt::format("{:.3g} ms", 1e3 * value) : "-"; };
  text += fmt::format("adaptive         {} {}; a step costs a rank {} by the recipe, {} whole, {} mixed\n",
                      to_string(plan_->way()), plan_->is_in_use() ? "in use" : "on trial", milliseconds(seconds.recipe),
                      milliseconds(seconds.whole), milliseconds(seconds.mixed));
  return text + (names.empty() ? "                 no layer travels whole\n" : names);
}

std::string Decisions::saved() const {
  if (!are_needed()) return "";
  Json object = {{"densities", densities_}};
  if (plan_) object["adaptive"] = plan_->saved();
  return object.dump();
}

void Decisions::check(std::string_view text) const {
  if (!are_needed() || text.empty()) return;
  const Json object = Json::parse(text, nullptr, false);
  const auto refuse = [](std::string_view why) {
    throw Error(ErrorKind::bad_input, fmt::format("state of a synchronizer: its decisions {}", why));
  };
  if (!object.is_object() || !object.contains("densities") || !object["densities"].is_array()) refuse("are damaged");
  if (object["densities"].size() != layers_.size()) refuse("are of other layers");
  for (const Json& density : object["densities"]) {
    if (!density.is_number()) refuse("are damaged");
  }
  if (!plan_ || !object.contains("adaptive")) return;
  if (!object["adaptive"].is_string()) refuse("are damaged");
  AdaptivePlan(*plan_).restore(object["adaptive"].get_ref<const std::string&>());
}

void Decisions::restore(std::string_view text) {
  if (!are_needed()) return;
  started_ = finished_ = 0;
  inside_seconds_ = 0;
  journal_.forget();
  ended_steps_ = pipelines_.empty() ? 0 : pipelines_.front()->started_steps();
  begin_plan();
  if (!text.empty()) {
    const Json object = Json::parse(text);
    object.at("densities").get_to(densities_);
    if (plan_ && object.contains("adaptive")) plan_->restore(object["adaptive"].get_ref<const std::string&>());
  }
  tell_pipelines();
}

Task<> Decisions::abandon() {
  Task<> sum = outlast(densities_sum_);
  co_await sum;
}

void Decisions::roll_back(std::uint64_t step) {
  if (!are_needed()) return;
  if (const Before* const before = journal_.find(step)) {
    plan_ = before->plan;
    densities_ = before->densities;
  }
  journal_.forget();
  ended_steps_ = step;
  started_ = finished_ = 0;
  inside_seconds_ = 0;
  tell_pipelines();
}

void Decisions::move_to(const Communicator& channel) {
  const bool has_other_ranks = channel.size() != channel_.size();
  channel_ = channel;
  if (!are_needed() || !has_other_ranks) return;
  const std::vector<double> densities = densities_;
  begin_plan();
  densities_ = densities;
  tell_pipelines();
}

}  // namespace tulle::gradient
