// RedSync's choice per layer: send a selection of its gradient, or all of it. RedSync, section 5.4, equations 1 and 2.
//
// Threads: pure functions, for any thread. REQUIRES of all: ranks >= 1, value_bytes > 0.
#pragma once

#include <limits>
#include <span>
#include <string_view>
#include <vector>

#include "tulle/comm/profile.hpp"

#pragma GCC visibility push(default)
namespace tulle {

/// What a selector takes on a layer: T_select, linear in its size.
struct SelectionCost {
  std::string_view selector;
  double fixed_seconds = 0;      ///< of starting it: on a GPU the launches of its kernels
  double seconds_per_value = 0;  ///< γ_select of the profile, or what a benchmark of the selector gives
};

struct LayerCall {
  int ranks = 8;
  double density = 0.001;  ///< D: what is selected
  double value_bytes = 4;
  double selected_bytes = 8;  ///< of a selected value on the wire: index and value; quantized, the index alone
  Profile profile = {};
};

/// The terms of the equations for a layer of M bytes, in seconds.
struct LayerCost {
  double select_seconds = 0;  ///< T_select
  double sparse_seconds = 0;  ///< (1): T_select + log2(p)·α + (p−1)·MD·β + p·γ1
  double dense_seconds = 0;   ///< (2): 2·log2(p)·α + 2(p−1)/p·M·β + (p−1)/p·γ2

  bool sparse_wins() const { return sparse_seconds < dense_seconds; }
};

/// γ1, of unpacking one rank's selection, is γ_sparse for each selected value; γ2, of adding two layers, is γ_dense for
/// each value of both, as the kernels count. MD is what the selection takes on the wire.
LayerCost layer_cost(const LayerCall& call, double layer_bytes, const SelectionCost& selection);

/// From this size on sparse synchronization wins; 0 where it always does, infinite where it never does.
double turning_bytes(const LayerCall& call, const SelectionCost& selection);

/// Layers from `from_bytes` on, up to the next region, are best sent with this selector, or dense where it is empty.
/// The name is the SelectionCost's, whose text must outlive this.
struct LayerRegion {
  double from_bytes = 0;
  std::string_view selector;
};

/// RedSync's policy: the cheapest of dense and every selector, by layer size, from the smallest on. O(n²) for n
/// selectors.
std::vector<LayerRegion> layer_regions(const LayerCall& call, std::span<const SelectionCost> selections);

}  // namespace tulle
#pragma GCC visibility pop
