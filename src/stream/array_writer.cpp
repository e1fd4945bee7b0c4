#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "stream/array_writer.cpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep; must come before highway.h
#include "hwy/highway.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

HWY_BEFORE_NAMESPACE();
namespace tulle {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Stores past the cache want whole aligned vectors; what is before the first and after the last is stored plainly.
void stream_floats(const float* from, float* to, std::size_t count) {
  const hn::ScalableTag<float> tag;
  const std::size_t bytes = hn::Lanes(tag) * sizeof(float);
  const std::size_t before = (bytes - reinterpret_cast<std::uintptr_t>(to) % bytes) % bytes / sizeof(float);
  std::size_t i = std::min(before, count);
  std::memcpy(to, from, i * sizeof(float));
  for (; i + hn::Lanes(tag) <= count; i += hn::Lanes(tag)) hn::Stream(hn::LoadU(tag, from + i), tag, to + i);
  std::memcpy(to + i, from + i, (count - i) * sizeof(float));
}

}  // namespace HWY_NAMESPACE
}  // namespace tulle
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "base/simd.hpp"
#include "hwy/cache_control.h"
#include "stream/array_writer.hpp"

namespace tulle {

HWY_EXPORT(stream_floats);

void ArrayWriter::copy(const float* from, float* to, std::size_t count) const {
  if (count == 0 || from == to) return;
  if (!is_past_cache_) {
    std::memcpy(to, from, count * sizeof(float));
    return;
  }
  apply_simd_environment();
  HWY_DYNAMIC_DISPATCH(stream_floats)(from, to, count);
}

ArrayWriter::~ArrayWriter() {
  if (is_past_cache_) hwy::FlushStream();
}

}  // namespace tulle
#endif  // HWY_ONCE
