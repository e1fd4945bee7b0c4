// What all ranks must have alike before they train together.
#pragma once

#include "tulle/comm/settings.hpp"
#include "tulle/linear/dataset.hpp"
#include "tulle/linear/train.hpp"

namespace tulle::linear {

/// Every option that changes what ranks compute or when they communicate, and whether rows are held out.
std::vector<Setting> settings_of(const TrainOptions& options, bool has_held_out);

/// How many rows and features `data` has, and a checksum of all of them; one pass. Equal for equal rows, however they
/// are cut into blocks.
Setting identity_of(Dataset& data);

}  // namespace tulle::linear
