// What a misspelt name was probably meant to be.
#pragma once

#include <string>
#include <string_view>

namespace tulle {

/// "; did you mean 'topk'?" if one of `names`, which are separated by ", ", differs from `name` in no more than a third
/// of its letters; else nothing. The nearest is named, and of several the first.
std::string did_you_mean(std::string_view name, std::string_view names);

}  // namespace tulle
