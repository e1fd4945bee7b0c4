// What `tulle explain` prints.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>

#include "tulle/tune/explain.hpp"
#include "tulle/tune/layer_sync.hpp"

namespace tulle::cli {

std::string as_text(const Explanation& explanation, std::string_view network);
nlohmann::ordered_json as_json(const Explanation& explanation, std::string_view network);

/// RedSync's choice for layers of some sizes.
std::string layers_text(const LayerCall& call, std::span<const double> layer_bytes, const SelectionCost& selection);
nlohmann::ordered_json layers_json(const LayerCall& call, std::span<const double> layer_bytes,
                                   const SelectionCost& selection);

}  // namespace tulle::cli
