// States of synchronizers in files: one a rank, or all of them one after the other in one.
#pragma once

#include <string>
#include <vector>

#include "tulle/base/buffer.hpp"
#include "tulle/gradient/synchronizer.hpp"

namespace tulle::gradient {

/// Both are collective: all ranks throw where one fails, and what was there before stays; else files of other numbers
/// of ranks are removed by the first. What they are given must outlive the task.
Task<> write_one_per_rank(Communicator& control, const std::string& path, const Buffer& state);
Task<> write_one_for_all(Communicator& control, const std::string& path, const Buffer& state,
                         const WritePart& write_part);

/// The states that a rank needs: its own where as many ranks saved as there are now, else those of all. Of several sets
/// of files (base/rank_files.hpp) the one with the most steps counts. Throws bad_input where there are none, or where
/// two have as many.
std::vector<Buffer> read_states(const std::string& path, int rank, int ranks);

}  // namespace tulle::gradient
