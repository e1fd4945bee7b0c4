// Writing arrays that are larger than the cache.
//
// A plain store to memory that is not in the cache first reads the line that it overwrites, and puts out something that
// somebody may still want. Arrays that do not fit in the cache anyway are better written past it: a copy then takes two
// thirds of the time.
#pragma once

#include <cstddef>

namespace tulle {

/// From so many bytes on arrays are written past the cache. Of smaller ones whoever reads them next finds most in the
/// last cache; of larger ones the first part has been put out again before the last one is written.
inline constexpr std::size_t kPastCacheBytes = std::size_t{16} << 20;

/// Writes arrays of floats piece by piece, in any order, of which there are `count` in all before the first is read
/// again. One thread at a time; others may read what it wrote after its end.
class ArrayWriter {
 public:
  explicit ArrayWriter(std::size_t count) : is_past_cache_(count * sizeof(float) >= kPastCacheBytes) {}
  ~ArrayWriter();
  ArrayWriter(const ArrayWriter&) = delete;
  ArrayWriter& operator=(const ArrayWriter&) = delete;

  bool is_past_cache() const { return is_past_cache_; }
  /// Copies `count` floats. REQUIRES: the two do not overlap, or are the same.
  void copy(const float* from, float* to, std::size_t count) const;

 private:
  bool is_past_cache_;
};

}  // namespace tulle
