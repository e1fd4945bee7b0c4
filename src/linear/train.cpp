#include "tulle/linear/train.hpp"

#include <fmt/format.h>

#include <array>

#include "base/memory.hpp"
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
  require(options.batch_rows >= 1, "batch_rows", "1 or more");
  require(options.rate > 0, "rate", "above 0");
  require(options.decay >= 0, "decay", "0 or more");
  require(options.penalty.l1 >= 0, "penalty.l1", "0 or more");
  require(options.penalty.l2 >= 0, "penalty.l2", "0 or more");
  require(options.staleness >= 0, "staleness", "0 or more");
  require(options.coordinates >= 1, "coordinates", "1 or more");
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

}  // namespace

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
  check(options);
  Session session(std::move(communicator), options);
  const OnRows* const on_labels = session.group.rank() == 0 ? &options.on_labels : nullptr;
  session.facts = co_await gather_facts(session.group, data, options.loss, options.solver == Solver::scd, on_labels);
  const std::uint64_t places = vectors_of(session.facts.labels.size()) * (session.facts.features + 1);
  require(places <= kMaxFeatures, "classes times features", fmt::format("at most {}", kMaxFeatures));
  const bool is_sgd = options.solver == Solver::sgd;
  std::unique_ptr<Method> method;
  // One large index in the data is enough for a model that no memory holds.
  const std::uint64_t arrays = is_sgd && options.schedule == Schedule::adagrad ? 2 : 1;
  const std::exception_ptr failure = failure_of([&] {
    require_memory(places * arrays * sizeof(float), fmt::format("a model of {} features", session.facts.features));
    method = is_sgd ? make_sgd(session, data) : make_scd(session, data);
  });
  co_await session.group.fail_together(failure);
  TrainResult result = co_await session.run(*method, held_out);
  result.algorithm = method->row();
  co_return result;
}

TrainResult train(Communicator& communicator, Dataset& data, Dataset* held_out, const TrainOptions& options) {
  return run_task(communicator, train_task(communicator, data, held_out, options));
}

}  // namespace tulle::linear
