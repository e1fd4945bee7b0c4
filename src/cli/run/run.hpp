// Where the flags of 'tulle run' end and the program begins.
#pragma once

#include <string>
#include <vector>

namespace tulle::cli {

/// Where `words`, those behind "tulle", call 'tulle run' without a "--", puts one in front of the first that is neither
/// a flag nor the value of one. What comes behind it is the program's own.
void mark_program(std::vector<std::string>& words);

}  // namespace tulle::cli
