// The one way in which commands write to the terminal: what came from files is never acted on by it.
#pragma once

#include <string_view>

namespace tulle::cli {

/// Writes to standard output at once, also into a pipe, with what is not printable escaped (base/printable.hpp). Throws
/// system where it cannot be written: a disk that is full must not look like success.
void print(std::string_view text);

/// The same to standard error, after what was printed before, as a line with "tulle: " in front.
void print_error(std::string_view message);

}  // namespace tulle::cli
