// Pairs that a pass finds, in order of index, and passes in parts on several threads.
#pragma once

#include <algorithm>

#include "base/parallel.hpp"
#include "select/dense_input.hpp"
#include "stream/dispatch.hpp"
#include "stream/pairs.hpp"

namespace tulle {

/// A growing list of pairs.
template <class V, class I>
class Survivors {
 public:
  explicit Survivors(std::size_t expected) : capacity_(expected), pairs_(expected) {}

  /// Where to write up to `count` more pairs, of which add() says how many they were.
  PairsTarget<V, I> room_for(std::size_t count) {
    if (size_ + count > capacity_) grow(2 * size_ + count);
    return pairs_.target().from(size_);
  }
  void add(std::size_t count) { size_ += count; }

  std::size_t size() const { return size_; }
  PairsView<V, I> view() const { return pairs_.view(size_); }
  AnyStream to_stream(const AnyStream& like) && { return std::move(pairs_).to_stream(like, size_); }

 private:
  void grow(std::size_t capacity) {
    PairsBuffer<V, I> larger(capacity);
    copy_pairs(view(), larger.target());
    pairs_ = std::move(larger);
    capacity_ = capacity;
  }

  std::size_t capacity_;
  PairsBuffer<V, I> pairs_;
  std::size_t size_ = 0;
};

template <class V, class I>
AnyStream join(const PoolVector<Survivors<V, I>>& parts, const AnyStream& like) {
  std::size_t total = 0;
  for (const auto& part : parts) total += part.size();
  PairsBuffer<V, I> joined(total);
  std::size_t done = 0;
  for (const auto& part : parts) {
    copy_pairs(part.view(), joined.target().from(done));
    done += part.size();
  }
  return std::move(joined).to_stream(like, total);
}

// Values of a part that one thread takes. Fewer would make starting and joining show.
inline constexpr std::uint64_t kPart = std::uint64_t{1} << 18;

/// Calls `pass(part, survivors)` for parts of the input, which begin at multiples of `unit`, and joins what they find.
/// Positions of a part count from the range's first.
template <class V, class I, class Pass>
AnyStream run_parts(const DenseInput& input, std::uint64_t unit, std::uint64_t expected, Pass pass) {
  const AnyStream like = AnyStream::empty(kValueTypeOf<V>, input.dimension, input.range);
  const std::uint64_t count = input.range.size();
  const std::uint64_t size = std::max<std::uint64_t>(kPart / unit, 1) * unit;
  const std::size_t parts = input.threads == 1 ? 1 : std::max<std::uint64_t>(count / size, 1);
  PoolVector<Survivors<V, I>> found;
  found.reserve(parts);
  for (std::size_t p = 0; p < parts; ++p) found.emplace_back(expected / parts);
  if (parts == 1) {
    pass(Range{0, count}, found.front());
    return std::move(found.front()).to_stream(like);
  }
  parallel_for(input.threads, parts, [&](std::size_t p) {
    pass(Range{p * size, p + 1 == parts ? count : (p + 1) * size}, found[p]);
  });
  return join(found, like);
}

/// Calls `function.template operator()<V, I>()` with the compute type and the index type of the input.
template <class Function>
decltype(auto) visit_input(const DenseInput& input, Function&& function) {
  return visit_compute_type(compute_type(input.type), [&]<class V>() {
    return visit_index_type(input.dimension, [&]<class I>() { return function.template operator()<V, I>(); });
  });
}

}  // namespace tulle
