// Memory that Python and the library share, both ways, without a copy.
//
// An array's memory is held by a view of the buffer protocol. The library may drop its last handle of one on any
// thread, also on one that holds a lock which a thread with the GIL waits for. So nothing here ever waits for the GIL:
// a view that ends without it is queued, and released by whoever has the GIL next.
#pragma once

#include <Python.h>

#include <cstddef>
#include <memory>
#include <span>

#include "tulle/base/buffer.hpp"
#include "tulle/base/value_type.hpp"

namespace tulle::python {

enum class Access { read, write };

/// A contiguous array of Python's, which lives and keeps its memory for as long as this does.
class ArrayView {
 public:
  /// Holds the memory of `object`. REQUIRES: the GIL. Gives null, and sets a Python error, where it has no contiguous
  /// memory, or none that may be written.
  static std::shared_ptr<ArrayView> of(PyObject* object, Access access);
  explicit ArrayView(const Py_buffer& view) : view_(view) {}
  ArrayView(const ArrayView&) = delete;
  ArrayView& operator=(const ArrayView&) = delete;
  /// From any thread.
  ~ArrayView();

  std::byte* data() const { return static_cast<std::byte*>(view_.buf); }
  std::size_t bytes() const { return static_cast<std::size_t>(view_.len); }

 private:
  Py_buffer view_;
};

/// A buffer of the library's that shares the view's memory.
Buffer buffer_of(const std::shared_ptr<ArrayView>& view);

/// Releases views that ended on threads without the GIL. REQUIRES: the GIL.
void release_ended_views();

}  // namespace tulle::python
