// Whatever somebody threw, as an error of this library's.
#pragma once

#include <exception>
#include <string_view>

#include "tulle/base/error.hpp"

namespace tulle {

/// The Error that was thrown; of anything else a system error that begins with `where`.
Error error_of(const std::exception_ptr& thrown, std::string_view where);

}  // namespace tulle
