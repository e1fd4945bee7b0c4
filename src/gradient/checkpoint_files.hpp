// States of synchronizers in files: one a rank, or all of them one after the other in one.
#pragma once

#include <string>
#include <vector>

#include "base/generations.hpp"
#include "tulle/base/buffer.hpp"
#include "tulle/gradient/synchronizer.hpp"

namespace tulle::gradient {

/// What is written, and as what.
struct StateToWrite {
  Buffer bytes;
  RunStep what;
};

/// Both are collective: all ranks throw where one fails, and what was there before stays; else it becomes the
/// generation before, and files of other numbers of ranks are removed. What they are given must outlive the task.
Task<> write_one_per_rank(Communicator& control, const std::string& path, const StateToWrite& state,
                          GenerationWriter& writer);
Task<> write_one_for_all(Communicator& control, const std::string& path, const StateToWrite& state,
                         const WritePart& write_part, GenerationWriter& writer);

/// What a rank goes on from.
struct ReadStates {
  std::vector<Buffer> states;  ///< its own where as many ranks saved as there are now, else those of all
  Generations on_disk;         ///< of the file that it would write next; empty: another than was read
  RunStep what;
  std::string note;  ///< why a newer file is left out; empty: there is none
};
/// Collective. Of the files at the path, of any kind and number of ranks, the newest of one run and step that is whole;
/// of several sets of files (base/rank_files.hpp) the one with the most steps counts. Throws bad_input where there are
/// none, or where two have as many.
Task<ReadStates> read_states(Communicator& control, const std::string& path);

/// The states of one file, one after the other. Throws bad_input where one is damaged.
std::vector<Buffer> states_in(const std::string& path);

}  // namespace tulle::gradient
