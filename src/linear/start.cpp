#include "linear/start.hpp"

#include <cmath>

#include "linear/losses.hpp"

namespace tulle::linear {
namespace {

// Rows of a vector that are positive and negative, each as often as it weighs.
struct Weighed {
  double positive = 0, negative = 0;
};

Weighed weigh(const Facts& facts, const std::vector<double>& class_weights, std::size_t vector) {
  const std::size_t positive = vectors_of(facts.labels.size()) == 1 ? 1 : vector;
  Weighed weighed;
  for (std::size_t i = 0; i < facts.labels.size(); ++i) {
    (i == positive ? weighed.positive : weighed.negative) += class_weights[i] * facts.counts[i];
  }
  return weighed;
}

// The constant with the least loss. Of the hinge loss that is ±1, a corner from which steps see no slope of most rows.
double best_constant(Loss loss, Weighed rows) {
  if (rows.positive <= 0 || rows.negative <= 0) return 0;
  if (loss == Loss::logistic) return std::log(rows.positive / rows.negative);
  if (loss == Loss::squared_hinge) return (rows.positive - rows.negative) / (rows.positive + rows.negative);
  return 0;
}

Start start_of_classes(const Facts& facts, const TrainOptions& options) {
  const std::vector<double> weights = class_weights(facts, options);
  Start start;
  for (std::size_t vector = 0; vector < vectors_of(facts.labels.size()); ++vector) {
    const Weighed rows = weigh(facts, weights, vector);
    const auto constant = static_cast<float>(options.intercept ? best_constant(options.loss, rows) : 0);
    start.intercepts.push_back(constant);
    visit_loss(options.loss, [&]<class L>() {
      start.loss += (rows.positive * L::value(constant, 1) + rows.negative * L::value(constant, -1)) / facts.rows;
    });
  }
  return start;
}

struct LocalSums {
  AnyStream squares, counts;
  bool is_binary = true;
};

LocalSums sums_of(Dataset& data, std::uint64_t features) {
  PoolVector<float> squares(features), counts(features);
  LocalSums sums;
  data.for_each_block([&](const Rows& rows) {
    sums.is_binary = sums.is_binary && rows.is_binary();
    for (std::size_t row = 0; row < rows.size(); ++row) {
      const RowView view = rows[row];
      for (std::size_t i = 0; i < view.indices.size(); ++i) {
        squares[view.indices[i]] += view.value(i) * view.value(i);
        counts[view.indices[i]] += 1;
      }
    }
  });
  std::vector<std::uint32_t> indices;
  std::vector<float> present_squares, present_counts;
  for (std::uint64_t feature = 0; feature < features; ++feature) {
    if (counts[feature] == 0) continue;
    indices.push_back(static_cast<std::uint32_t>(feature));
    present_squares.push_back(squares[feature]);
    present_counts.push_back(counts[feature]);
  }
  sums.squares = Stream<float>::from_sorted<std::uint32_t>(features, indices, present_squares);
  sums.counts = Stream<float>::from_sorted<std::uint32_t>(features, indices, present_counts);
  return sums;
}

}  // namespace

Task<Start> gather_start(Group& group, Dataset& data, const Facts& facts, const TrainOptions& options,
                         bool is_replicated) {
  Start start;
  if (options.loss != Loss::squares) {
    const std::exception_ptr failure = failure_of([&] { start = start_of_classes(facts, options); });
    co_await group.fail_together(failure);
    co_return start;
  }
  double sum = 0, squares = 0;
  const std::exception_ptr failure = failure_of([&] {
    data.for_each_block([&](const Rows& rows) {
      for (const double label : rows.labels()) {
        sum += label;
        squares += label * label;
      }
    });
  });
  co_await group.fail_together(failure);
  std::vector<double> sums{sum, squares};
  if (!is_replicated) sums = co_await group.agree(std::move(sums));
  const auto mean = static_cast<float>(options.intercept ? sums[0] / facts.rows : 0);
  const double left = std::max(0.0, sums[1] / facts.rows - 2 * mean * sums[0] / facts.rows + double{mean} * mean);
  start = {.intercepts = {mean}, .loss = left / 2, .target_scale = left > 0 ? std::sqrt(left) : 1};
  co_return start;
}

Task<std::optional<FeatureSums>> gather_feature_sums(Group& group, Dataset& data, std::uint64_t features) {
  LocalSums mine;
  const std::exception_ptr failure = failure_of([&] { mine = sums_of(data, features); });
  co_await group.fail_together(failure);
  const std::vector<double> has_values{mine.is_binary ? 0.0 : 1.0};
  const std::vector<double> any = co_await group.agree(has_values, Op::max());
  if (any[0] == 0) co_return std::nullopt;
  const CommunicationStats stats = group.stats();  // this is not part of the training
  AnyStream squares = co_await group.sum(std::move(mine.squares), "ssar_split_allgather");
  AnyStream counts = co_await group.sum(std::move(mine.counts), "ssar_split_allgather");
  group.set_stats(stats);
  std::optional<FeatureSums> sums = FeatureSums{std::move(squares), std::move(counts)};
  co_return sums;
}

std::vector<float> feature_rates(const std::optional<FeatureSums>& sums) {
  if (!sums) return {};
  const std::vector<float> counts = Stream<float>(sums->counts).to_vector();
  std::vector<float> rates = Stream<float>(sums->squares).to_vector();
  for (std::size_t feature = 0; feature < rates.size(); ++feature) {
    const double rate = std::sqrt(static_cast<double>(counts[feature]) / rates[feature]);
    rates[feature] = std::isfinite(rate) && rate > 0 ? static_cast<float>(rate) : 1.0f;
  }
  return rates;
}

}  // namespace tulle::linear
