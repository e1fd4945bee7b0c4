// What all ranks have to know about the data before they begin.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "linear/group.hpp"
#include "tulle/linear/dataset.hpp"
#include "tulle/linear/model.hpp"
#include "tulle/linear/train.hpp"

namespace tulle::linear {

struct Facts {
  std::uint64_t features = 0;
  double rows = 0;                 ///< of all ranks
  std::uint64_t largest_part = 0;  ///< rows of the rank that has most
  std::vector<float> labels;       ///< distinct, increasing; for classifiers alone
  std::vector<double> counts;      ///< of each label
};

/// Called with the number of rows that were read since the last time.
using OnRows = std::function<void(std::uint64_t rows)>;

/// Reads all rows once where `loss` is a classifier's, to see their labels. Throws bad_input where there are no rows,
/// or labels that are no classes.
Task<Facts> gather_facts(Group& group, Dataset& data, Loss loss, bool is_replicated, const OnRows* on_rows = nullptr);

/// Throws system on all ranks, naming the largest index of the data, where `bytes_of_feature` for every feature are
/// more than this machine has for all ranks on it. `is_shared`: ranks hold it once.
Task<> require_memory_for(Group& group, const Facts& facts, std::uint64_t bytes_of_feature, bool is_shared = false);

/// What rows weigh by their class: a factor for each label of `facts`.
std::vector<double> class_weights(const Facts& facts, const TrainOptions& options);

/// Which of `classes` the label is; their number where it is none of them.
std::size_t class_of(float label, const std::vector<float>& classes);

}  // namespace tulle::linear
