// What training starts from: the best model without features, and the scales of targets and features, by which steps
// are measured. Data in other units then trains the same way.
#pragma once

#include <optional>
#include <vector>

#include "linear/facts.hpp"

namespace tulle::linear {

struct Start {
  std::vector<float> intercepts;  ///< of the best constant, one a vector; 0 for hinge and where there is no intercept
  double loss = 0;                ///< mean over rows, of a model of these intercepts alone
  double target_scale = 1;        ///< for squares, the root mean square of what the constant leaves
};

/// Reads all rows once where the loss is squares. `is_replicated`: every rank has all of them.
Task<Start> gather_start(Group& group, Dataset& data, const Facts& facts, const TrainOptions& options,
                         bool is_replicated);

/// Σ value² and the number of values of each feature, over the rows of all ranks.
struct FeatureSums {
  AnyStream squares, counts;
};
/// Reads all rows once. Nothing where all values are 1.
Task<std::optional<FeatureSums>> gather_feature_sums(Group& group, Dataset& data, std::uint64_t features);

/// What a rate is multiplied by for each feature: 1 over the root mean square of its values. None for no sums.
std::vector<float> feature_rates(const std::optional<FeatureSums>& sums);

}  // namespace tulle::linear
