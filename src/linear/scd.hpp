// Stochastic coordinate descent with the updates gathered by everyone. SparCML, section 6: MPI-OPT.
#pragma once

#include <memory>

#include "linear/session.hpp"
#include "linear/start.hpp"

namespace tulle::linear {

/// REQUIRES: every rank has all of the data; the loss has a curvature.
std::unique_ptr<Method> make_scd(Session& session, Dataset& data, const Start& start);

}  // namespace tulle::linear
