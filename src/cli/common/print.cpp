#include "cli/common/print.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>

#include "base/printable.hpp"
#include "tulle/base/error.hpp"

namespace tulle::cli {

void print(std::string_view text) {
  const std::string shown = printable(text);
  const bool is_written = std::fwrite(shown.data(), 1, shown.size(), stdout) == shown.size();
  if (std::fflush(stdout) == 0 && is_written) return;
  const int reason = errno;
  std::clearerr(stdout);
  throw Error(ErrorKind::system, fmt::format("standard output cannot be written: {}", std::strerror(reason)));
}

// One call writes the line, so that lines of ranks which share a terminal stay whole.
void print_error(std::string_view message) {
  std::fflush(stdout);
  fmt::print(stderr, "{}", fmt::format("tulle: {}\n", printable(message)));
  std::fflush(stderr);
}

}  // namespace tulle::cli
