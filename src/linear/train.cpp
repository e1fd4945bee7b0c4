#include "tulle/linear/train.hpp"

#include <fmt/format.h>

#include <array>

#include "linear/agreement.hpp"
#include "linear/scd.hpp"
#include "linear/session.hpp"
#include "linear/sgd.hpp"
#include "tulle/base/error.hpp"

namespace tulle::linear {
namespace {

constexpr std::array<std::pair<std::string_view, Schedule>, 6> kSchedules = {
    {{"constant", Schedule::constant},
     {"step", Schedule::step},
     {"inverse", Schedule::inverse},
     {"inverse_square_root", Schedule::inverse_square_root},
     {"bold_driver", Schedule::bold_driver},
     {"adagrad", Schedule::adagrad}}};

void require(bool holds, std::string_view field, std::string_view allowed) {
  if (!holds) throw Error(ErrorKind::bad_input, fmt::format("{} must be {}", field, allowed));
}

void check(const TrainOptions& options) {
  require(options.epochs >= 1, "epochs", "1 or more");
  require(options.rate > 0, "rate", "above 0");
  require(options.decay >= 0, "decay", "0 or more");
  require(options.tolerance >= 0, "tolerance", "0 or more");
  require(options.penalty.l1 >= 0, "penalty.l1", "0 or more");
  require(options.penalty.l2 >= 0, "penalty.l2", "0 or more");
  require(options.staleness >= 0, "staleness", "0 or more");
  require(options.patience >= 1, "patience", "1 or more");
  const bool is_scd = options.solver == Solver::scd;
  require(!is_scd || options.loss != Loss::hinge, "loss",
          "one with a curvature for scd: squared_hinge in place of hinge");
  require(!is_scd || options.threads == 1, "threads", "1 for scd");
  const bool has_class_weights = options.balanced || !options.class_weights.empty();
  require(options.loss != Loss::squares || !has_class_weights, "class weights", "left out for squares");
  require(!options.replicas || (!is_scd && options.staleness == 0), "replicas", "null for scd and with staleness");
  require(!is_scd || options.damping == 0 || options.damping >= 1, "damping", "0, or 1 or more");
  const bool is_scaled = options.solver == Solver::sgd && options.schedule != Schedule::adagrad;
  require(!is_scaled || options.rate * options.penalty.l2 < 1, "rate", "below 1/l2");
}

// What coordinate descent computes on one rank is added to what the others have, of the same rows.
Task<> require_same_data(Group& group, Dataset& data) {
  std::vector<Setting> identity;
  const std::exception_ptr unreadable = failure_of([&] { identity.push_back(identity_of(data)); });
  co_await group.fail_together(unreadable);
  co_await group.require_same(std::move(identity));
}

// What a rank holds for each feature, at most. One large index in the data is enough for more than there is.
std::uint64_t bytes_of_feature(const TrainOptions& options, std::uint64_t vectors) {
  const std::uint64_t models = 2 * sizeof(float);  // one for a checkpoint or a measure, one as the result
  if (options.solver == Solver::scd) return sizeof(std::uint64_t) + vectors * models;
  const bool is_penalized = options.penalty.l1 > 0 || options.penalty.l2 > 0;
  const std::uint64_t gradient = sizeof(float) + 1;
  if (options.schedule != Schedule::adagrad) {
    return vectors * (gradient + models + sizeof(float) + (options.penalty.l1 > 0 ? sizeof(double) : 0));
  }
  const std::uint64_t scales = 4 * sizeof(float);  // their sums, here and from all ranks
  return scales + vectors * (gradient + models + (is_penalized ? 16 : 8));
}

}  // namespace

double default_rate(Loss loss) {
  switch (loss) {
    case Loss::logistic:
    case Loss::hinge: return 0.2;
    case Loss::squared_hinge: return 0.08;
    case Loss::squares: return 0.05;
  }
  return 0.1;
}

std::string_view to_string(Schedule schedule) {
  for (const auto& [name, each] : kSchedules) {
    if (each == schedule) return name;
  }
  return "unknown";
}

Schedule schedule_from(std::string_view name) {
  for (const auto& [each, schedule] : kSchedules) {
    if (each == name) return schedule;
  }
  throw Error(
      ErrorKind::bad_input,
      fmt::format("'{}' is not one of constant, step, inverse, inverse_square_root, bold_driver, adagrad", name));
}

Task<TrainResult> train_task(Communicator communicator, Dataset& data, Dataset* held_out, TrainOptions options) {
  if (options.rate == 0) options.rate = default_rate(options.loss);
  Session session(std::move(communicator), options);
  std::vector<Setting> settings = settings_of(options, held_out != nullptr);
  co_await session.group.require_same(std::move(settings));
  const std::exception_ptr refused = failure_of([&] { check(options); });
  co_await session.group.fail_together(refused);
  if (options.solver == Solver::scd) co_await require_same_data(session.group, data);
  const OnRows* const on_labels = session.group.rank() == 0 ? &options.on_labels : nullptr;
  session.facts = co_await gather_facts(session.group, data, options.loss, options.solver == Solver::scd, on_labels);
  const std::uint64_t places = vectors_of(session.facts.labels.size()) * (session.facts.features + 1);
  require(places <= kMaxFeatures, "classes times features", fmt::format("at most {}", kMaxFeatures));
  const bool is_sgd = options.solver == Solver::sgd;
  const std::uint64_t bytes = bytes_of_feature(options, vectors_of(session.facts.labels.size()));
  co_await require_memory_for(session.group, session.facts, bytes, options.replicas != nullptr);
  const Start start = co_await gather_start(session.group, data, session.facts, options, !is_sgd);
  std::optional<FeatureSums> sums;
  if (is_sgd && options.schedule == Schedule::adagrad) {
    sums = co_await gather_feature_sums(session.group, data, session.facts.features);
  }
  std::unique_ptr<Method> method;
  const std::exception_ptr failure =
      failure_of([&] { method = is_sgd ? make_sgd(session, data, start, sums) : make_scd(session, data, start); });
  sums.reset();
  co_await session.group.fail_together(failure);
  TrainResult result = co_await session.run(*method, held_out, start.loss);
  result.algorithm = method->row();
  co_return result;
}

TrainResult train(Communicator& communicator, Dataset& data, Dataset* held_out, const TrainOptions& options) {
  return run_task(communicator, train_task(communicator, data, held_out, options));
}

}  // namespace tulle::linear
