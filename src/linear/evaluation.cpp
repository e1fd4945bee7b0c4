// The area under the ROC curve is exact: every rank counts its positives and negatives by score in a sparse stream over
// all floats, and the sum of the streams has every score of every rank in order. Ties count half.
#include "linear/evaluation.hpp"

#include "linear/facts.hpp"
#include "linear/losses.hpp"
#include "linear/ordered_key.hpp"

namespace tulle::linear {
namespace {

constexpr std::int64_t kOnePositive = std::int64_t{1} << 32;

struct Tally {
  double rows = 0, loss = 0, correct = 0;
  std::vector<std::uint32_t> score_keys;
  std::vector<std::int64_t> score_counts;
};

double loss_of(const LinearModel& model, std::size_t vector, double margin, float label, std::size_t label_class) {
  return visit_loss(model.loss, [&]<class L>() {
    if (!model.is_classifier()) return L::value(margin, label);
    const std::size_t positive = model.vectors() == 1 ? 1 : vector;
    return L::value(margin, label_class == positive ? 1 : -1);
  });
}

void add_row(const LinearModel& model, RowView row, float label, Tally& tally) {
  const std::size_t label_class = class_of(label, model.classes);
  std::size_t best = 0;
  double best_margin = 0;
  for (std::size_t vector = 0; vector < model.vectors(); ++vector) {
    const double margin = model.margin(row, vector);
    tally.loss += loss_of(model, vector, margin, label, label_class);
    if (vector == 0 || margin > best_margin) {
      best = vector;
      best_margin = margin;
    }
  }
  tally.rows += 1;
  if (!model.is_classifier()) return;
  if (model.vectors() > 1) {
    tally.correct += best == label_class;
    return;
  }
  tally.correct += (best_margin > 0 ? 1u : 0u) == label_class;
  tally.score_keys.push_back(ordered_key(static_cast<float>(best_margin)));
  tally.score_counts.push_back(label_class == 1 ? kOnePositive : 1);
}

}  // namespace

std::optional<double> area_under_curve(const Stream<std::int64_t>& counts) {
  double positives = 0, negatives = 0, pairs = 0;
  for (const std::int64_t both : counts.values()) {
    const auto positive = static_cast<double>(both >> 32), negative = static_cast<double>(both & (kOnePositive - 1));
    pairs += positive * (negatives + negative / 2);
    positives += positive;
    negatives += negative;
  }
  if (positives == 0 || negatives == 0) return std::nullopt;
  return pairs / (positives * negatives);
}

Task<Evaluation> evaluate_task(Group& group, Dataset& data, const LinearModel& model) {
  Tally tally;
  const std::exception_ptr failure = failure_of([&] {
    data.for_each_block([&](const Rows& rows) {
      for (std::size_t row = 0; row < rows.size(); ++row) add_row(model, rows[row], rows.label(row), tally);
    });
  });
  co_await group.fail_together(failure);
  const std::vector<double> mine{tally.rows, tally.loss, tally.correct};
  const std::vector<double> sums = co_await group.agree(mine);
  Evaluation evaluation{.rows = sums[0],
                        .loss = sums[1] / std::max(1.0, sums[0]),
                        .accuracy = sums[2] / std::max(1.0, sums[0]),
                        .auc = {}};
  if (!model.is_classifier() || model.vectors() > 1) co_return evaluation;
  AnyStream counts = Stream<std::int64_t>::from_pairs<std::uint32_t>(kKeys, tally.score_keys, tally.score_counts);
  counts = co_await group.sum(std::move(counts), "ssar_split_allgather");
  evaluation.auc = area_under_curve(Stream<std::int64_t>(counts));
  co_return evaluation;
}

Evaluation evaluate(Communicator& communicator, Dataset& data, const LinearModel& model) {
  Group group(communicator);
  return run_task(communicator, evaluate_task(group, data, model));
}

}  // namespace tulle::linear
