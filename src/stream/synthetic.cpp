#include "stream/synthetic.hpp"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "tulle/base/error.hpp"
#include "tulle/base/philox.hpp"

namespace tulle {
namespace {

constexpr Overlap kOverlaps[] = {Overlap::uniform, Overlap::identical, Overlap::disjoint, Overlap::zipf};

// Knuth's algorithm S: every index of [0, extent) in turn, kept with the probability that leaves `count` in the end.
std::vector<std::uint64_t> sample_in_order(Philox& random, std::uint64_t extent, std::uint64_t count) {
  std::vector<std::uint64_t> kept;
  kept.reserve(count);
  for (std::uint64_t index = 0; kept.size() < count; ++index) {
    if (random.below(extent - index) < count - kept.size()) kept.push_back(index);
  }
  return kept;
}

// The lowest indices that `kept` does not hold, until it holds `count`.
void fill_gaps(std::vector<std::uint64_t>& kept, std::uint64_t count) {
  std::vector<std::uint64_t> gaps;
  auto next = kept.begin();
  for (std::uint64_t index = 0; kept.size() + gaps.size() < count; ++index) {
    if (next != kept.end() && *next == index) {
      ++next;
    } else {
      gaps.push_back(index);
    }
  }
  kept.insert(kept.end(), gaps.begin(), gaps.end());
  std::inplace_merge(kept.begin(), kept.end() - static_cast<std::ptrdiff_t>(gaps.size()), kept.end());
}

// Draws until `count` are distinct. After a few rounds `draw` has shown that it repeats itself too often.
template <class Draw>
std::vector<std::uint64_t> sample_distinct(std::uint64_t count, Draw draw) {
  constexpr int kRounds = 20;
  std::vector<std::uint64_t> kept;
  kept.reserve(2 * count);
  for (int round = 0; kept.size() < count && round < kRounds; ++round) {
    const std::size_t missing = count - kept.size();
    for (std::size_t i = 0; i < missing; ++i) kept.push_back(draw());
    std::sort(kept.begin(), kept.end());
    kept.erase(std::unique(kept.begin(), kept.end()), kept.end());
  }
  fill_gaps(kept, count);
  return kept;
}

std::vector<std::uint64_t> sample_uniform(Philox& random, std::uint64_t extent, std::uint64_t count) {
  if (count > extent / 8) return sample_in_order(random, extent, count);
  return sample_distinct(count, [&] { return random.below(extent); });
}

std::vector<std::uint64_t> sample_zipf(Philox& random, std::uint64_t extent, std::uint64_t count) {
  const double log_extent = std::log(static_cast<double>(extent) + 1);
  return sample_distinct(count, [&] {
    const auto index = static_cast<std::uint64_t>(std::exp(random.uniform() * log_extent)) - 1;
    return std::min(index, extent - 1);
  });
}

std::vector<std::uint64_t> sample_indices(const SyntheticSpec& spec) {
  const auto rank = static_cast<std::uint64_t>(spec.rank);
  const auto ranks = static_cast<std::uint64_t>(spec.ranks);
  const std::uint64_t count = std::min(spec.nnz, spec.dimension);
  Philox random(spec.seed, spec.overlap == Overlap::identical ? 0 : rank + 1);
  if (spec.overlap == Overlap::zipf) return sample_zipf(random, spec.dimension, count);
  if (spec.overlap != Overlap::disjoint) return sample_uniform(random, spec.dimension, count);
  std::vector<std::uint64_t> indices =
      sample_uniform(random, spec.dimension / ranks, std::min(count, spec.dimension / ranks));
  for (std::uint64_t& index : indices) index = index * ranks + rank;
  return indices;
}

template <class V>
V draw_value(Philox& random, SyntheticValues values) {
  const auto magnitude = static_cast<int>(random.below(4)) + 1;
  const int sign = random.below(2) == 0 ? 1 : -1;
  if constexpr (std::is_integral_v<V>) {
    return static_cast<V>(sign * magnitude);
  } else if (values == SyntheticValues::small_integers) {
    return static_cast<V>(static_cast<float>(sign * magnitude));
  } else {
    const double spread = (random.uniform() + random.uniform() + random.uniform() - 1.5) * 2;
    return static_cast<V>(static_cast<float>(spread));
  }
}

}  // namespace

std::string_view to_string(Overlap overlap) {
  switch (overlap) {
    case Overlap::uniform: return "uniform";
    case Overlap::identical: return "identical";
    case Overlap::disjoint: return "disjoint";
    case Overlap::zipf: return "zipf";
  }
  return "unknown";
}

Overlap overlap_from(std::string_view name) {
  std::string allowed;
  for (const Overlap overlap : kOverlaps) {
    if (to_string(overlap) == name) return overlap;
    allowed += (allowed.empty() ? "" : ", ") + std::string(to_string(overlap));
  }
  throw Error(ErrorKind::bad_input, "no overlap is called '" + std::string(name) + "'; there are " + allowed);
}

AnyStream synthetic_stream(const SyntheticSpec& spec) {
  const std::vector<std::uint64_t> indices = sample_indices(spec);
  Philox random(spec.seed ^ 0x76616c75u, static_cast<std::uint64_t>(spec.rank));
  return visit_value_type(spec.type, [&]<class V>() -> AnyStream {
    std::vector<V> values(indices.size());
    for (V& value : values) value = draw_value<V>(random, spec.values);
    return Stream<V>::template from_sorted<std::uint64_t>(spec.dimension, indices, values);
  });
}

}  // namespace tulle
