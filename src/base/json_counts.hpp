// Counts in JSON that comes from outside. The JSON library converts whatever number is asked for as an integer: a
// fraction is cut off, and one that no integer holds is undefined behaviour.
#pragma once

#include <fmt/format.h>

#include <initializer_list>
#include <string_view>

#include "tulle/base/error.hpp"

namespace tulle {

/// Throws bad_input unless each of those fields that is there is a whole number. `where` begins the message. A
/// template, so that this layer needs no JSON library.
template <class Json>
void require_counts(const Json& object, std::initializer_list<const char*> names, std::string_view where) {
  for (const char* const name : names) {
    const auto found = object.find(name);
    if (found == object.end() || found->is_number_integer()) continue;
    throw Error(ErrorKind::bad_input, fmt::format("{}: {} is {}, which is no count", where, name, found->dump()));
  }
}

}  // namespace tulle
