#include "base/parallel.hpp"

#include <fmt/format.h>
#include <tbb/info.h>
#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <string_view>

#include "tulle/base/error.hpp"

namespace tulle {

int default_threads() {
  const char* const text = std::getenv("TULLE_THREADS");
  if (text == nullptr || *text == '\0') return tbb::info::default_concurrency();
  const std::string_view view(text);
  int threads = 0;
  const auto [end, error] = std::from_chars(view.data(), view.data() + view.size(), threads);
  if (error != std::errc() || end != view.data() + view.size() || threads < 1) {
    throw Error(ErrorKind::bad_input, fmt::format("TULLE_THREADS is '{}', expected a number from 1 on", view));
  }
  return threads;
}

void detail::parallel_for(int threads, std::size_t count, const std::function<void(std::size_t)>& body) {
  // More threads than processors only wait for each other, and TBB prints a warning about them.
  const int wanted = std::min(threads > 0 ? threads : default_threads(), tbb::info::default_concurrency());
  if (wanted == 1 || count < 2) {
    for (std::size_t i = 0; i < count; ++i) body(i);
    return;
  }
  // Parts are few and large: one task each, so that none waits behind another.
  tbb::task_arena arena(wanted);
  arena.execute([&] { tbb::parallel_for(std::size_t{0}, count, body, tbb::simple_partitioner()); });
}

}  // namespace tulle
