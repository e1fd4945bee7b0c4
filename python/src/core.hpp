// What the sources of the module `tulle._core` share. The module is private: python/tulle wraps it.
#pragma once

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "base/did_you_mean.hpp"
#include "memory.hpp"
#include "tulle/stream/stream.hpp"

namespace tulle::python {

namespace py = pybind11;

/// Bytes of the library's for Python to look at; never written.
struct Memory {
  Buffer buffer;
};

/// The array as a view. Throws what Python says where it has no contiguous memory.
inline std::shared_ptr<ArrayView> view_of(const py::handle& array, Access access) {
  std::shared_ptr<ArrayView> view = ArrayView::of(array.ptr(), access);
  if (!view) throw py::error_already_set();
  return view;
}

/// Computes without the GIL and gives the result.
template <class Function>
auto without_gil(Function function) {
  const py::gil_scoped_release released;
  return function();
}

inline py::str text(std::string_view view) { return {view.data(), view.size()}; }

/// What is expected of an option whose value is not of its type; apply() says which option it is.
struct WrongValue {
  std::string expected;
};

/// The value of an option. Throws WrongValue.
template <class T>
T read(const py::handle& value, const char* expected = nullptr) {
  try {
    return value.cast<T>();
  } catch (const py::cast_error&) {
    if (expected != nullptr) throw WrongValue{expected};
    if constexpr (std::is_same_v<T, std::string>) throw WrongValue{"text"};
    if constexpr (std::is_same_v<T, bool>) throw WrongValue{"True or False"};
    if constexpr (std::is_unsigned_v<T>) throw WrongValue{"a whole number, 0 or more"};
    if constexpr (std::is_integral_v<T>) throw WrongValue{"a whole number"};
    throw WrongValue{"a number"};
  }
}

/// Seconds of a deadline; 0 is the default. Throws WrongValue.
inline double read_seconds(const py::handle& value) {
  const char* const expected = "seconds, or leave it out for the default";
  const auto seconds = read<double>(value, expected);
  if (seconds >= 0) return seconds;
  throw WrongValue{expected};
}

/// A value of an enumeration and what Python calls it.
template <class Enum>
struct Named {
  std::string_view name;
  Enum value;
};

/// The value of that name. Throws bad_input that lists the names.
template <class Enum, std::size_t kCount>
Enum named(const py::handle& given, const Named<Enum> (&all)[kCount], const char* what) {
  const auto name = read<std::string>(given);
  std::string names;
  for (const Named<Enum>& each : all) {
    if (each.name == name) return each.value;
    names += (names.empty() ? "" : ", ") + std::string(each.name);
  }
  throw Error(ErrorKind::bad_input, std::string("no ") + what + " is called '" + name + "'; there are " + names);
}

/// Sets what keyword arguments name. A setter reads its value from Python.
template <class Options>
struct Setter {
  std::string_view name;
  void (*set)(Options& options, const py::handle& value);
};

template <class Options, std::size_t kCount>
std::string names_of(const Setter<Options> (&setters)[kCount]) {
  std::string names;
  for (const Setter<Options>& setter : setters) names += (names.empty() ? "" : ", ") + std::string(setter.name);
  return names;
}

/// Throws TypeError for a name that none of the setters has, and for a value that is not of its type.
template <class Options, std::size_t kCount>
void apply(Options& options, const py::dict& arguments, const Setter<Options> (&setters)[kCount]) {
  for (const auto& [key, value] : arguments) {
    const auto name = key.template cast<std::string>();
    const Setter<Options>* found = nullptr;
    for (const Setter<Options>& setter : setters) {
      if (setter.name == name) found = &setter;
    }
    if (found == nullptr) {
      const std::string names = names_of(setters);
      throw py::type_error("there is no option '" + name + "'; there are " + names + did_you_mean(name, names));
    }
    try {
      found->set(options, value);
    } catch (const WrongValue& wrong) {
      throw py::type_error("option '" + name + "' is " + std::string(py::repr(value)) + ": give " + wrong.expected);
    }
  }
}

void bind_data(py::module_& module);
void bind_calls(py::module_& module);
void bind_gradient(py::module_& module);
void bind_tuning(py::module_& module);

}  // namespace tulle::python
