// How good a model is on rows that several ranks hold.
#pragma once

#include "linear/group.hpp"
#include "tulle/linear/train.hpp"

namespace tulle::linear {

Task<Evaluation> evaluate_task(Group& group, Dataset& data, const LinearModel& model);

/// Area under the ROC curve from counts by score: the high halves of `counts` are positives, the low ones negatives.
/// None without rows of both.
std::optional<double> area_under_curve(const Stream<std::int64_t>& counts);

}  // namespace tulle::linear
