// Loops on several threads, the same for every layer.
#pragma once

#include <cstddef>
#include <functional>

#pragma GCC visibility push(default)
namespace tulle {

/// What `threads = 0` means: TULLE_THREADS where that is set, else the processors this process may use.
/// Throws bad_input where TULLE_THREADS is no number above 0.
int default_threads();

namespace detail {
void parallel_for(int threads, std::size_t count, const std::function<void(std::size_t)>& body);
}

/// Calls body(0) … body(count − 1), each once, in any order, on up to `threads` threads (0: default_threads()).
/// Returns when all are done; rethrows an exception of one of them. With one thread it is a plain loop, which allocates
/// nothing: the body stays where it is, however much it captures.
template <class Body>
void parallel_for(int threads, std::size_t count, const Body& body) {
  detail::parallel_for(threads, count, std::cref(body));
}

}  // namespace tulle
#pragma GCC visibility pop
