// Mini-batch SGD with the gradient summed by an allreduce. SparCML, section 6: MPI-OPT.
#pragma once

#include <memory>

#include "linear/session.hpp"
#include "linear/start.hpp"

namespace tulle::linear {

std::unique_ptr<Method> make_sgd(Session& session, Dataset& data, const Start& start,
                                 const std::optional<FeatureSums>& sums);

}  // namespace tulle::linear
