#include "nn/job_settings.hpp"

#include <fmt/format.h>

namespace tulle::nn {
namespace {

std::string on_or_off(bool is_on) { return is_on ? "on" : "off"; }

std::string text(double number) { return fmt::format("{}", number); }

void add_rate(std::vector<Setting>& settings, const TrainerOptions& options) {
  settings.push_back({"servers", fmt::format("{}", options.server.servers)});
  settings.push_back({"rate", text(options.rate)});
  settings.push_back({"scale_rate", on_or_off(options.scale_rate)});
  settings.push_back({"schedule", std::string(to_string(options.schedule.schedule))});
  settings.push_back({"warm_up_epochs", text(options.schedule.warm_up_epochs)});
}

void add_optimizer(std::vector<Setting>& settings, const OptimizerOptions& optimizer) {
  settings.push_back({"optimizer", std::string(to_string(optimizer.kind))});
  settings.push_back({"momentum", text(optimizer.momentum)});
  settings.push_back({"nesterov", on_or_off(optimizer.nesterov)});
  settings.push_back({"weight_decay", text(optimizer.weight_decay)});
  settings.push_back({"beta1", text(optimizer.beta1)});
  settings.push_back({"beta2", text(optimizer.beta2)});
  settings.push_back({"epsilon", text(optimizer.epsilon)});
}

}  // namespace

std::vector<Setting> job_settings(const TrainerOptions& options, const Learner& learner) {
  const auto whole = [](std::uint64_t number) { return fmt::format("{}", number); };
  std::vector<Setting> settings = {{"recipe", to_string(options.recipe)}};
  add_rate(settings, options);
  add_optimizer(settings, options.optimizer);
  settings.push_back({"clip_norm", text(options.clip_norm)});
  settings.push_back({"batch", whole(options.batch)});
  settings.push_back({"steps_of_epoch", whole(options.steps_of_epoch)});
  settings.push_back({"epochs", fmt::format("{}", options.epochs)});
  settings.push_back({"patience", fmt::format("{}", options.patience)});
  settings.push_back({"seed", whole(options.seed)});
  settings.push_back({"overlap", on_or_off(options.overlap)});
  settings.push_back({"buffers", std::string(to_string(options.buffers))});
  settings.push_back({"evaluation_batch", whole(options.evaluation_batch)});
  settings.push_back({"checkpoint", on_or_off(!options.checkpoint.path.empty())});
  settings.push_back({"resume", on_or_off(options.checkpoint.resume)});
  settings.push_back({"step_log", on_or_off(!options.step_log.lines.empty() || !options.step_log.trace.empty())});
  settings.push_back({"samples", whole(learner.train_samples())});
  settings.push_back({"held-out samples", whole(learner.test_samples())});
  return settings;
}

std::vector<Setting> server_settings(const TrainerOptions& options) {
  std::vector<Setting> settings;
  add_rate(settings, options);
  add_optimizer(settings, options.optimizer);
  return settings;
}

}  // namespace tulle::nn
