// Memory of all arrays that pipelines keep between steps.
//
// One block serves all parameters. A step goes through all of it, so that each small array would begin with pages that
// nobody has touched for long; a large block is in huge pages, of which a few hundred parameters share one. It comes
// from the system as zeros that take no memory until they are written: a recipe may never write to some of its arrays.
#pragma once

#include <sys/mman.h>

#include <cassert>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <span>

namespace tulle::gradient {

class KeptMemory {
 public:
  /// For `arrays` arrays of `values` in all.
  KeptMemory(std::uint64_t arrays, std::uint64_t values)
      : size_(values + arrays * kLine), memory_(std::calloc(size_ + kLine, sizeof(float))) {
    if (memory_ == nullptr) throw std::bad_alloc();
    const auto begin = reinterpret_cast<std::uintptr_t>(memory_.get());
    first_ = reinterpret_cast<float*>(rounded_up(begin, kLine * sizeof(float)));
    const std::uintptr_t end = begin + size_ * sizeof(float), first_page = rounded_up(begin, kPage);
    if (end < first_page + kHugePagesPay) return;
    madvise(reinterpret_cast<void*>(first_page), end - first_page, MADV_HUGEPAGE);  // a hint; nothing depends on it
  }

  /// An array of zeros, which is good as long as this is. REQUIRES: no more than what was asked for.
  std::span<float> take(std::uint64_t values) {
    assert(taken_ + values <= size_);
    const std::span<float> array(first_ + taken_, values);
    taken_ += (values + kLine - 1) / kLine * kLine;
    return array;
  }

 private:
  struct Free {
    void operator()(void* memory) const { std::free(memory); }
  };
  static constexpr std::uint64_t kLine = 16;  // values; arrays begin on a line of the cache
  static constexpr std::uintptr_t kPage = 4096, kHugePagesPay = 4u << 20;
  static std::uintptr_t rounded_up(std::uintptr_t address, std::uintptr_t unit) {
    return (address + unit - 1) / unit * unit;
  }
  std::uint64_t size_;
  std::unique_ptr<void, Free> memory_;
  float* first_ = nullptr;
  std::uint64_t taken_ = 0;
};

}  // namespace tulle::gradient
