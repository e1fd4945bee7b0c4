// Memory of all arrays that pipelines keep between steps.
//
// One block serves all parameters. A step goes through all of it, so that each small array would begin with pages that
// nobody has touched for long; a large block is in huge pages, of which a few hundred parameters share one.
#pragma once

#include <cassert>
#include <cstdint>
#include <span>

#include "tulle/base/buffer.hpp"

namespace tulle::gradient {

class KeptMemory {
 public:
  /// For `arrays` arrays of `values` in all.
  KeptMemory(std::uint64_t arrays, std::uint64_t values) : memory_(values + arrays * kLine) {}

  /// An array of zeros, which is good as long as this is. REQUIRES: no more than what was asked for.
  std::span<float> take(std::uint64_t values) {
    assert(taken_ + values <= memory_.size());
    const std::span<float> array = std::span(memory_).subspan(taken_, values);
    taken_ += (values + kLine - 1) / kLine * kLine;
    return array;
  }

 private:
  static constexpr std::uint64_t kLine = 16;  // values; arrays begin on a line of the cache
  PoolVector<float> memory_;
  std::uint64_t taken_ = 0;
};

}  // namespace tulle::gradient
