// What a function that must not work says.
#pragma once

#include <exception>
#include <string>

namespace tulle::testing {

template <class Function>
std::string error_of(Function function) {
  try {
    function();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace tulle::testing
