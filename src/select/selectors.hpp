// The rows of the registry, each in a file of its own, and what they share.
#pragma once

#include "select/candidates.hpp"
#include "select/dense_input.hpp"
#include "tulle/select/selector.hpp"

namespace tulle {

Selection exact_top_k(const DenseInput& input, const SelectOptions& options);
Selection bucketed_top_k(const DenseInput& input, const SelectOptions& options);
Selection trimmed_top_k(const DenseInput& input, const SelectOptions& options);
Selection threshold_binary_search(const DenseInput& input, const SelectOptions& options);
Selection threshold_filter(const DenseInput& input, const SelectOptions& options);
Selection sampled_top_k(const DenseInput& input, const SelectOptions& options);
Selection top_k_signed(const DenseInput& input, const SelectOptions& options);
Selection bottom_k_signed(const DenseInput& input, const SelectOptions& options);
Selection random_k(const DenseInput& input, const SelectOptions& options);

/// How many of `count` values the options ask for. REQUIRES: k or density is set.
std::uint64_t wanted_k(const SelectOptions& options, std::uint64_t count);

Side side_of(Sign sign);
/// The options' part of a search for candidates.
CandidateSpec candidates_of(const DenseInput& input, const SelectOptions& options, Side side);

/// exact_top_k.cpp: the k largest of one side.
Selection select_top_k(const DenseInput& input, const SelectOptions& options, Side side);

/// `selected`, of the compute type, in the input's type and no longer in its residual.
Selection taken(const DenseInput& input, const AnyStream& selected, double threshold, std::uint64_t passed);

}  // namespace tulle
