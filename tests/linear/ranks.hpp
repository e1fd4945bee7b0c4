// Trains on simulated ranks, each with its part of the rows.
#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "linear/sample_rows.hpp"
#include "tulle/comm/sim.hpp"
#include "tulle/comm/threads.hpp"
#include "tulle/linear/train.hpp"

namespace tulle::testing {

/// Rank r holds parts[r]; gives every rank's result.
inline std::vector<linear::TrainResult> train_in_simulation(std::vector<linear::Rows> parts,
                                                            const linear::TrainOptions& options) {
  std::vector<linear::Dataset> data;
  for (linear::Rows& part : parts) data.emplace_back(std::move(part));
  std::vector<linear::TrainResult> results(data.size());
  SimWorld world({.ranks = static_cast<int>(data.size())});
  world.run([&](Communicator& communicator) -> Task<> {
    const auto rank = static_cast<std::size_t>(communicator.rank());
    results[rank] = co_await linear::train_task(communicator, data[rank], nullptr, options);
  });
  return results;
}

/// Consecutive parts, of which the first ones have one row more.
inline std::vector<linear::Rows> cut_rows(const linear::Rows& rows, std::size_t ranks) {
  std::vector<linear::Rows> parts;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    parts.push_back(slice_rows(rows, rank * rows.size() / ranks, (rank + 1) * rows.size() / ranks));
  }
  return parts;
}

inline linear::LinearModel train_alone(const linear::Rows& rows, const linear::TrainOptions& options) {
  return train_in_simulation({rows}, options)[0].model;
}

/// What training minimizes.
inline double objective(const linear::LinearModel& model, const linear::Rows& rows, linear::Penalty penalty) {
  double loss = 0;
  run_threads(1, [&](Communicator& communicator) {
    linear::Dataset data(rows);
    loss = linear::evaluate(communicator, data, model).loss;
  });
  return loss + model.penalty(penalty);
}

inline double largest_difference(const linear::LinearModel& a, const linear::LinearModel& b) {
  double largest = 0;
  for (std::size_t i = 0; i < a.weights.size(); ++i) {
    largest = std::max(largest, std::abs(static_cast<double>(a.weights[i]) - b.weights[i]));
  }
  return largest;
}

}  // namespace tulle::testing
