#include "memory.hpp"

#include <mutex>
#include <utility>
#include <vector>

namespace tulle::python {
namespace {

struct EndedViews {
  std::mutex mutex;
  std::vector<Py_buffer> views;
};

// Never destroyed: views may end while the process does.
EndedViews& ended_views() {
  static EndedViews* const ended = new EndedViews;
  return *ended;
}

int release_when_called(void*) {
  release_ended_views();
  return 0;
}

}  // namespace

std::shared_ptr<ArrayView> ArrayView::of(PyObject* object, Access access) {
  Py_buffer view;
  if (PyObject_GetBuffer(object, &view, access == Access::write ? PyBUF_WRITABLE : PyBUF_SIMPLE) != 0) return nullptr;
  return std::make_shared<ArrayView>(view);
}

ArrayView::~ArrayView() {
  if (Py_IsInitialized() == 0) return;  // the interpreter is gone, and its memory will be
  if (PyGILState_Check() == 1) {
    PyBuffer_Release(&view_);
    return;
  }
  {
    const std::lock_guard lock(ended_views().mutex);
    ended_views().views.push_back(view_);
  }
  Py_AddPendingCall(release_when_called, nullptr);  // may be refused; then the next call of ours releases
}

Buffer buffer_of(const std::shared_ptr<ArrayView>& view) {
  return Buffer::adopt(view->data(), view->bytes(), [view] {});
}

void release_ended_views() {
  std::vector<Py_buffer> views;
  {
    const std::lock_guard lock(ended_views().mutex);
    views.swap(ended_views().views);
  }
  for (Py_buffer& view : views) PyBuffer_Release(&view);
}

}  // namespace tulle::python
