// Who has not come yet, in words.
#pragma once

#include <string>
#include <vector>

#include "tulle/base/error.hpp"

namespace tulle {

/// "rank 3", "ranks 1, 4", "ranks 1, 2, 3 and 90 more". REQUIRES: not empty.
std::string name_ranks(const std::vector<int>& ranks);

/// "ranks 1, 4 did not `verb` within 60 s", and what else is known; with the first of them as the peer.
Error missing_ranks_error(const std::vector<int>& ranks, const std::string& verb, double seconds,
                          const std::string& known = "");

}  // namespace tulle
