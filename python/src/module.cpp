// The module `tulle._core`, and how errors of the library become Python's.

#include "core.hpp"
#include "tulle/base/error.hpp"
#include "tulle/version.hpp"

namespace tulle::python {
namespace {

// The classes are Python's: tulle/_errors.py has one a kind.
void raise(const Error& error) {
  const py::object made =
      py::module_::import("tulle._errors")
          .attr("make_error")(text(to_string(error.kind())), std::string(error.what()), error.rank(), error.peer());
  PyErr_SetObject(py::type::handle_of(made).ptr(), made.ptr());
}

}  // namespace

PYBIND11_MODULE(_core, module) {
  py::register_exception_translator([](std::exception_ptr thrown) {
    try {
      if (thrown) std::rethrow_exception(thrown);
    } catch (const Error& error) {
      raise(error);
    }
  });
  module.attr("version") = TULLE_VERSION;
  bind_data(module);
  bind_calls(module);
  bind_gradient(module);
  bind_tuning(module);
}

}  // namespace tulle::python
