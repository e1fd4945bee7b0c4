// Text from outside, made safe to show.
#pragma once

#include <string>
#include <string_view>

namespace tulle {

/// `text` in which every byte that a terminal might act on, or cannot show, is written as \xNN: control characters but
/// '\n', DEL, the C1 controls, characters that change the direction of writing, and what is not UTF-8. Text that is
/// printable comes back as it is, and so does what this function gave. Linear in the length; any thread may call it.
std::string printable(std::string_view text);

}  // namespace tulle
