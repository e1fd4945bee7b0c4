// Deadlines that callers give.
#pragma once

#include <string_view>

namespace tulle {

/// Throws bad_input that names the deadline unless `seconds` is above 0; infinity is no deadline.
void require_deadline(double seconds, std::string_view name);

}  // namespace tulle
