#include "tulle/base/value_type.hpp"

#include <string>

#include "base/did_you_mean.hpp"
#include "tulle/base/error.hpp"

namespace tulle {

std::string_view to_string(ValueType type) {
  switch (type) {
#define TULLE_CASE(name, cpp_type) \
  case ValueType::name: return #name;
    TULLE_FOR_EACH_VALUE_TYPE(TULLE_CASE)
#undef TULLE_CASE
  }
  return "unknown";
}

ValueType value_type_from(std::string_view name) {
  std::string allowed;
  for (const ValueType type : kAllValueTypes) {
    if (to_string(type) == name) return type;
    allowed += (allowed.empty() ? "" : ", ") + std::string(to_string(type));
  }
  throw Error(ErrorKind::bad_input, "no value type is called '" + std::string(name) + "'; there are " + allowed +
                                        did_you_mean(name, allowed));
}

}  // namespace tulle
