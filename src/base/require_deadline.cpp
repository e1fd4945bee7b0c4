#include "base/require_deadline.hpp"

#include <fmt/format.h>

#include "tulle/base/error.hpp"

namespace tulle {

void require_deadline(double seconds, std::string_view name) {
  if (seconds > 0) return;  // not of NaN
  throw Error(ErrorKind::bad_input, fmt::format("{} is {} s; it must be a number above 0", name, seconds));
}

}  // namespace tulle
