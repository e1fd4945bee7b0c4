#include "comm/thrown.hpp"

#include <fmt/format.h>

namespace tulle {

Error error_of(const std::exception_ptr& thrown, std::string_view where) {
  try {
    std::rethrow_exception(thrown);
  } catch (const Error& error) {
    return error;
  } catch (const std::exception& error) {
    return Error(ErrorKind::system, fmt::format("{}: {}", where, error.what()));
  } catch (...) {
    return Error(ErrorKind::system, fmt::format("{}: something that is no std::exception was thrown", where));
  }
}

}  // namespace tulle
