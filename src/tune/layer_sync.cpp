#include "tulle/tune/layer_sync.hpp"

#include <cmath>

namespace tulle {
namespace {

// seconds = fixed + per_byte · M: both equations are linear in the size of the layer.
struct Line {
  std::string_view selector;
  double fixed = 0;
  double per_byte = 0;

  double at(double bytes) const { return fixed + per_byte * bytes; }
};

double log2_ranks(const LayerCall& call) { return std::log2(call.ranks); }

Line sparse_line(const LayerCall& call, const SelectionCost& selection) {
  const Profile& profile = call.profile;
  const double selected_per_byte = call.density / call.value_bytes;
  return {selection.selector, selection.fixed_seconds + log2_ranks(call) * profile.alpha_seconds,
          selection.seconds_per_value / call.value_bytes +
              (call.ranks - 1) * selected_per_byte * call.selected_bytes * profile.beta_seconds_per_byte +
              call.ranks * selected_per_byte * profile.gamma_sparse_seconds};
}

Line dense_line(const LayerCall& call) {
  const double share = (call.ranks - 1.0) / call.ranks;
  const double add_per_byte = 2 * call.profile.gamma_dense_seconds / call.value_bytes;
  return {"", 2 * log2_ranks(call) * call.profile.alpha_seconds,
          2 * share * call.profile.beta_seconds_per_byte + share * add_per_byte};
}

// Where `next` falls below `now` as layers grow; infinite where it never does.
double crossing(const Line& now, const Line& next) {
  if (next.per_byte >= now.per_byte) return std::numeric_limits<double>::infinity();
  return (next.fixed - now.fixed) / (now.per_byte - next.per_byte);
}

bool is_less(const Line& a, const Line& b) {
  return a.fixed < b.fixed || (a.fixed == b.fixed && a.per_byte < b.per_byte);
}

}  // namespace

LayerCost layer_cost(const LayerCall& call, double layer_bytes, const SelectionCost& selection) {
  return {selection.fixed_seconds + selection.seconds_per_value * layer_bytes / call.value_bytes,
          sparse_line(call, selection).at(layer_bytes), dense_line(call).at(layer_bytes)};
}

double turning_bytes(const LayerCall& call, const SelectionCost& selection) {
  const Line sparse = sparse_line(call, selection), dense = dense_line(call);
  if (!is_less(dense, sparse) && sparse.per_byte <= dense.per_byte) return 0;
  return std::max(0.0, crossing(dense, sparse));
}

std::vector<LayerRegion> layer_regions(const LayerCall& call, std::span<const SelectionCost> selections) {
  std::vector<Line> lines = {dense_line(call)};
  for (const SelectionCost& selection : selections) lines.push_back(sparse_line(call, selection));
  Line now = lines.front();
  for (const Line& line : lines) now = is_less(line, now) ? line : now;
  std::vector<LayerRegion> regions = {{0, now.selector}};
  while (true) {
    const Line* next = nullptr;
    double nearest = std::numeric_limits<double>::infinity();
    for (const Line& line : lines) {
      if (crossing(now, line) >= nearest) continue;
      nearest = crossing(now, line);
      next = &line;
    }
    if (next == nullptr) return regions;
    now = *next;
    regions.push_back({nearest, now.selector});
  }
}

}  // namespace tulle
