// What was there before each of the last two steps, so that a step can be undone.
//
// How it works. A step adds gradients to accumulators, and sums in floating point cannot be taken back: what a step
// changes is copied before it begins. Two copies are kept, because two are needed: a rank that has finished step n and
// begun n + 1 may have to undo either. A rank that finishes n + 1 has heard of everybody in it, so that everybody has
// finished n: the copy from before n is then overwritten by that from before n + 2. Each step is one more pass over
// what it changes, and nothing is allocated after the second.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>

#include "tulle/base/buffer.hpp"

namespace tulle::gradient {

/// Two copies of something, by the number of the step that came next.
template <class Copy>
class Journal {
 public:
  /// The copy that becomes the one from before `step`; it holds what it held two steps ago, for its memory.
  Copy& begin(std::uint64_t step) {
    Entry& entry = entries_[step % entries_.size()];
    entry.step = step;
    return entry.copy;
  }
  /// Null where step `step` was not begun, or is too long ago.
  const Copy* find(std::uint64_t step) const {
    const Entry& entry = entries_[step % entries_.size()];
    return entry.step == step ? &entry.copy : nullptr;
  }
  /// Nothing can be undone any more. The memory stays.
  void forget() {
    for (Entry& entry : entries_) entry.step.reset();
  }

 private:
  struct Entry {
    std::optional<std::uint64_t> step;
    Copy copy;
  };
  std::array<Entry, 2> entries_;
};

/// Arrays of the caller's, one after the other.
class ArrayCopy {
 public:
  void save(std::span<const std::span<std::byte>> arrays);
  /// REQUIRES: arrays of the same sizes.
  void restore(std::span<const std::span<std::byte>> arrays) const;

 private:
  PoolVector<std::byte> bytes_;
};

}  // namespace tulle::gradient
