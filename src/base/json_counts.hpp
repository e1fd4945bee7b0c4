// Counts in JSON that comes from outside. The JSON library converts whatever number is asked for as an integer: a
// fraction is cut off, a negative one becomes a large one, and one that no integer holds is undefined behaviour.
// Templates, so that this layer needs no JSON library.
#pragma once

#include <fmt/format.h>

#include <initializer_list>
#include <string>
#include <string_view>

#include "tulle/base/error.hpp"

namespace tulle {

/// A value in the words of a message. Not what it contains: brackets may be nested so deeply that the stack does not
/// hold the words for it.
template <class Json>
std::string shown(const Json& value) {
  return value.is_structured() ? value.type_name() : value.dump();
}

/// Throws bad_input unless each of those fields that is there is a whole number from 0 on. `where` begins the message.
template <class Json>
void require_counts(const Json& object, std::initializer_list<const char*> names, std::string_view where) {
  for (const char* const name : names) {
    const auto found = object.find(name);
    if (found == object.end() || found->is_number_unsigned()) continue;
    throw Error(ErrorKind::bad_input, fmt::format("{}: {} is {}, which is no count", where, name, shown(*found)));
  }
}

}  // namespace tulle
