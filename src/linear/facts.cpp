#include "linear/facts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/memory.hpp"
#include "linear/ordered_key.hpp"
#include "tulle/base/error.hpp"

namespace tulle::linear {
namespace {

constexpr std::size_t kMostClasses = 1000;

std::map<float, std::int64_t> count_labels(Dataset& data, const OnRows* on_rows) {
  std::map<float, std::int64_t> counts;
  data.for_each_block([&](const Rows& rows) {
    if (on_rows != nullptr && *on_rows) (*on_rows)(rows.labels().size());
    if (counts.size() > kMostClasses) return;  // told below, by all ranks
    for (const float label : rows.labels()) counts[label] += 1;
  });
  return counts;
}

AnyStream as_stream(const std::map<float, std::int64_t>& counts) {
  std::vector<std::uint32_t> keys;
  std::vector<std::int64_t> values;
  for (const auto& [label, count] : counts) {
    keys.push_back(ordered_key(label));
    values.push_back(count);
  }
  return Stream<std::int64_t>::from_sorted<std::uint32_t>(kKeys, keys, values);
}

void check_labels(const Facts& facts) {
  if (facts.labels.size() > kMostClasses) {
    throw Error(ErrorKind::bad_input,
                fmt::format("more than {} different labels: loss squares predicts numbers", kMostClasses));
  }
  if (facts.labels.size() < 2) throw Error(ErrorKind::bad_input, "all rows have the same label: nothing to tell apart");
}

}  // namespace

Task<Facts> gather_facts(Group& group, Dataset& data, Loss loss, bool is_replicated, const OnRows* on_rows) {
  const auto rows = static_cast<double>(data.rows());
  const std::vector<double> mine{static_cast<double>(data.features()), rows};
  const std::vector<double> largest = co_await group.agree(mine, Op::max());
  const std::vector<double> total = co_await group.agree(mine);
  Facts facts{.features = static_cast<std::uint64_t>(largest[0]),
              .rows = is_replicated ? rows : total[1],
              .largest_part = static_cast<std::uint64_t>(largest[1])};
  if (facts.rows == 0) throw Error(ErrorKind::bad_input, "the data has no rows");
  if (loss == Loss::squares) co_return facts;
  AnyStream stream;
  const std::exception_ptr failure = failure_of([&] { stream = as_stream(count_labels(data, on_rows)); });
  co_await group.fail_together(failure);
  if (!is_replicated) stream = co_await group.sum(std::move(stream), "ssar_recursive_double");
  const Stream<std::int64_t> counts(std::move(stream));
  for (std::size_t i = 0; i < counts.nnz(); ++i) {
    facts.labels.push_back(from_ordered_key(counts.indices<std::uint32_t>()[i]));
    facts.counts.push_back(static_cast<double>(counts.values()[i]));
  }
  const std::exception_ptr unusable = failure_of([&] { check_labels(facts); });
  co_await group.fail_together(unusable);
  co_return facts;
}

Task<> require_memory_for(Group& group, const Facts& facts, std::uint64_t bytes_of_feature, bool is_shared) {
  const std::uint64_t ranks = is_shared ? 1 : group.ranks_of_node();
  const std::string whose = ranks > 1 ? fmt::format(" on each of {} ranks here", ranks) : "";
  const std::exception_ptr failure = failure_of([&] {
    require_memory(facts.features * bytes_of_feature * ranks,
                   fmt::format("the largest index in the data is {} (counted from 0): {} features at {} bytes each{}",
                               facts.features - 1, facts.features, bytes_of_feature, whose));
  });
  co_await group.fail_together(failure);
}

std::vector<double> class_weights(const Facts& facts, const TrainOptions& options) {
  std::vector<double> weights(facts.labels.size(), 1.0);
  for (const auto& [label, weight] : options.class_weights) {
    if (class_of(label, facts.labels) < facts.labels.size()) continue;
    throw Error(ErrorKind::bad_input, fmt::format("class weight of label {}: no row has it", label));
  }
  for (std::size_t i = 0; i < weights.size(); ++i) {
    if (options.balanced) weights[i] = facts.rows / (static_cast<double>(weights.size()) * facts.counts[i]);
    if (const auto given = options.class_weights.find(facts.labels[i]); given != options.class_weights.end()) {
      weights[i] *= given->second;
    }
  }
  return weights;
}

std::size_t class_of(float label, const std::vector<float>& classes) {
  const auto found = std::lower_bound(classes.begin(), classes.end(), label);
  return found != classes.end() && *found == label ? static_cast<std::size_t>(found - classes.begin()) : classes.size();
}

}  // namespace tulle::linear
