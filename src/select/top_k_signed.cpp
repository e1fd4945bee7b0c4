// top_k_signed: the k largest positive values; bottom_k_signed: the k most negative ones.
//
// How it works. As exact_top_k, with keys for one sign alone: values of the other sign count as zeros. So all selected
// values have the same sign, which is what lets RedSync send their mean and k indices instead of k pairs; it takes
// turns between top and bottom. Where fewer than k values have that sign, fewer are selected. With NonFinite::largest,
// NaN and infinity of either sign come first.
#include "select/selectors.hpp"

namespace tulle {

Selection top_k_signed(const DenseInput& input, const SelectOptions& options) {
  return select_top_k(input, options, Side::positive);
}

Selection bottom_k_signed(const DenseInput& input, const SelectOptions& options) {
  return select_top_k(input, options, Side::negative);
}

}  // namespace tulle
