// What the ranks of a training must have alike: a rank with another rate or batch would train to the end, and to
// weights that are not the others'.
#pragma once

#include <vector>

#include "nn/learner.hpp"
#include "tulle/comm/settings.hpp"
#include "tulle/nn/options.hpp"

namespace tulle::nn {

/// By the names of the options' fields. What each rank decides for itself is not among them: paths, callbacks, how long
/// between two checkpoints, which rank 0 decides.
std::vector<Setting> job_settings(const TrainerOptions& options, const Learner& learner);
/// Those by which servers step: each has a part of the weights, and all ranks are given the same options.
std::vector<Setting> server_settings(const TrainerOptions& options);

}  // namespace tulle::nn
