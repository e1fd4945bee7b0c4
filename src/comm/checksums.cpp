#include "comm/checksums.hpp"

#include <fmt/format.h>

#include <cstdlib>
#include <string_view>

#include "tulle/base/error.hpp"

namespace tulle {

Checksums checksums_of_environment() {
  const char* const text = std::getenv(kChecksumVariable);
  const std::string_view value = text != nullptr ? text : "";
  if (value.empty() || value == "on") return Checksums::on;
  if (value == "off") return Checksums::off;
  if (value == "all") return Checksums::all;
  throw Error(ErrorKind::bad_input, fmt::format("{}: '{}' is not on, off or all", kChecksumVariable, value));
}

}  // namespace tulle
