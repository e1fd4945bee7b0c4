// Trains with a synchronizer on simulated ranks and keeps everything that came out.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "tulle/base/philox.hpp"
#include "tulle/comm/sim.hpp"
#include "tulle/comm/threads.hpp"
#include "tulle/gradient/synchronizer.hpp"

namespace tulle::gradient::testing {

using Values = std::vector<float>;

/// The gradient of a parameter on a rank in a step; empty: the rank has none and skips.
using GradientFunction = std::function<Values(int rank, std::uint64_t step, ParameterId parameter)>;

struct Training {
  int ranks = 2;
  Recipe recipe;
  std::vector<Parameter> parameters;
  std::uint64_t steps = 1;
  GradientFunction gradient;
  SynchronizerOptions options = {};
  std::uint64_t seed = 1;  ///< of the simulation, and of the order in which a rank starts its parameters
  bool any_order = false;
  Profile profile = {};  ///< of the simulated network
};

struct Trained {
  std::vector<std::vector<std::vector<Values>>> updates;  ///< by step, parameter and rank
  std::vector<std::vector<Values>> residuals;             ///< by parameter and rank, after the last step
  std::vector<std::vector<Values>> momenta;
  std::vector<std::vector<ParameterStats>> stats;
  std::vector<std::vector<PlanRow>> plans;  ///< by rank
  std::vector<std::string> reports;         ///< by rank
  std::vector<std::exception_ptr> errors;
};

inline Values copy_of(std::span<const float> values) { return {values.begin(), values.end()}; }

inline std::vector<ParameterId> order_of(const Training& training, int rank, std::uint64_t step) {
  std::vector<ParameterId> order(training.parameters.size());
  for (ParameterId id = 0; id < order.size(); ++id) order[id] = id;
  if (!training.any_order) return order;
  Philox random(training.seed, step * 1000 + static_cast<std::uint64_t>(rank));
  for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
  return order;
}

inline void start_all(Synchronizer& synchronizer, const Training& training, int rank, std::uint64_t step) {
  for (const ParameterId id : order_of(training, rank, step)) {
    const Values gradient = training.gradient(rank, step, id);
    if (!gradient.empty()) synchronizer.start(id, std::span<const float>(gradient));
  }
  synchronizer.end_step();
}

inline Task<> train_rank(Communicator& communicator, const Training& training, Trained& trained) {
  const auto rank = static_cast<std::size_t>(communicator.rank());
  Task<Synchronizer> making =
      Synchronizer::await_make(communicator, training.parameters, training.recipe, training.options);
  Synchronizer synchronizer = co_await making;
  for (std::uint64_t step = 0; step < training.steps; ++step) {
    start_all(synchronizer, training, communicator.rank(), step);
    for (const ParameterId id : order_of(training, communicator.rank() + 100, step)) {
      Values& update = trained.updates[step][id][rank];
      update.assign(training.parameters[id].size, -1.0f);
      Task<bool> finishing = synchronizer.await_finish_into(id, update);
      co_await finishing;
    }
  }
  for (ParameterId id = 0; id < training.parameters.size(); ++id) {
    trained.residuals[id][rank] = copy_of(synchronizer.residual(id));
    trained.momenta[id][rank] = copy_of(synchronizer.momentum(id));
    trained.stats[id][rank] = synchronizer.stats(id);
  }
  trained.plans[rank] = synchronizer.plan();
  Task<std::string> reporting = synchronizer.await_report();
  trained.reports[rank] = co_await reporting;
}

inline Trained room_for(const Training& training) {
  const auto ranks = static_cast<std::size_t>(training.ranks);
  const std::size_t parameters = training.parameters.size();
  Trained trained;
  trained.updates.assign(training.steps, std::vector(parameters, std::vector<Values>(ranks)));
  trained.residuals.assign(parameters, std::vector<Values>(ranks));
  trained.momenta = trained.residuals;
  trained.stats.assign(parameters, std::vector<ParameterStats>(ranks));
  trained.plans.resize(ranks);
  trained.reports.resize(ranks);
  return trained;
}

inline Trained try_train(const Training& training) {
  Trained trained = room_for(training);
  SimOptions sim{.ranks = training.ranks, .profile = training.profile, .seed = training.seed};
  if (training.any_order) sim.faults.max_delay_seconds = 1e-3;
  SimWorld world(sim);
  const Program program = [&](Communicator& communicator) { return train_rank(communicator, training, trained); };
  trained.errors = world.try_run(program);
  return trained;
}

inline std::string message_of(const std::exception_ptr& error) {
  try {
    if (error) std::rethrow_exception(error);
  } catch (const std::exception& thrown) {
    return thrown.what();
  }
  return "";
}

inline Trained train(const Training& training) {
  Trained trained = try_train(training);
  for (const std::exception_ptr& error : trained.errors) EXPECT_EQ(message_of(error), "");
  return trained;
}

/// The same on threads, each with a progress thread beside it.
inline Trained train_on_threads(const Training& training) {
  Trained trained = room_for(training);
  run_threads(training.ranks, [&](Communicator& communicator) {
    communicator.start_progress_thread();
    Task<> task = train_rank(communicator, training, trained);
    run_task(communicator, task);
  });
  return trained;
}

/// Replicas must not drift: every rank got the same bits in every step.
inline void expect_same_updates(const Trained& trained) {
  for (std::size_t step = 0; step < trained.updates.size(); ++step) {
    for (const std::vector<Values>& by_rank : trained.updates[step]) {
      for (const Values& update : by_rank) ASSERT_EQ(update, by_rank.front()) << "in step " << step;
    }
  }
}

/// Integers whose sums, means over up to 16 ranks and shares are exact in f32, a few much larger than the others.
inline Values integer_gradient(std::uint64_t size, int rank, std::uint64_t step, ParameterId parameter) {
  constexpr int kDividesBy = 16;
  Philox random(step * 64 + parameter, static_cast<std::uint64_t>(rank));
  Values values(size);
  for (float& value : values) {
    const auto magnitude = static_cast<int>(random.below(20) == 0 ? random.below(900) : random.below(20));
    value = static_cast<float>((random.below(2) == 0 ? magnitude : -magnitude) * kDividesBy);
  }
  return values;
}

inline Values float_gradient(std::uint64_t size, int rank, std::uint64_t step, ParameterId parameter) {
  Philox random(step * 64 + parameter + 7777, static_cast<std::uint64_t>(rank));
  Values values(size);
  for (float& value : values) value = static_cast<float>(random.uniform() * random.uniform() * 2 - 0.5);
  return values;
}

}  // namespace tulle::gradient::testing
