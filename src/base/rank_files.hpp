// Files of a job's ranks on disk: PATH.RANK-of-RANKS, a set for each number of ranks that the job has had.
//
// A job that goes on with another number of ranks begins another set. The old one is removed when the new one is whole,
// so that no later job takes it for the newer.
#pragma once

#include <string>
#include <vector>

namespace tulle {

/// The file of one rank.
std::string path_of_rank(const std::string& path, int rank, int ranks);
/// The numbers of ranks of which a file of rank 0 is there, in its place or as the one before. A job that was killed
/// in its first save has left none.
std::vector<int> sets_on_disk(const std::string& path);
/// Removes the files of all other numbers of ranks, as far as that is allowed.
void remove_other_sets(const std::string& path, int ranks);

}  // namespace tulle
