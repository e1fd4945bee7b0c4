#include "linear/gradient_accumulator.hpp"

#include <algorithm>
#include <bit>

#include "base/parallel.hpp"

namespace tulle::linear {
namespace {

// Ranges of threads begin where words of the two lower bitmaps do.
constexpr std::uint64_t kAlignment = 4096;
// Sums lie far apart and are rarely in a cache, so the memory is asked for them so many values before they are added.
constexpr std::size_t kAhead = 24;

template <class Function>
void for_each_bit(std::uint64_t word, Function function) {
  for (; word != 0; word &= word - 1) function(static_cast<std::uint64_t>(std::countr_zero(word)));
}

// Borders that give `parts` about equal shares of the batch's non-zeros, from a sample of it.
PoolVector<std::uint64_t> balanced_borders(const Batch& batch, std::uint64_t offset, std::size_t parts,
                                           std::uint64_t end) {
  PoolVector<std::uint64_t> sample;
  for (std::size_t row = 0; row < batch.size(); row += 8) {
    for (std::size_t i = row / 8 % 4; i < batch.rows[row].indices.size(); i += 4) {
      sample.push_back(offset + batch.rows[row].indices[i]);
    }
  }
  std::sort(sample.begin(), sample.end());
  PoolVector<std::uint64_t> borders{0};
  for (std::size_t part = 1; part < parts && !sample.empty(); ++part) {
    const std::uint64_t wanted = sample[part * sample.size() / parts] / kAlignment * kAlignment;
    borders.push_back(std::max(borders.back(), wanted));
  }
  borders.push_back(end);
  return borders;
}

}  // namespace

GradientAccumulator::GradientAccumulator(std::uint64_t dimension)
    : dimension_(dimension),
      sums_(dimension),
      touched_(dimension / 64 + 1),
      touched_words_(dimension / 4096 + 1),
      touched_groups_(dimension / 262144 + 1) {}

void GradientAccumulator::add_rows(const Batch& batch, std::span<const float> coefficients, std::uint64_t offset,
                                   int threads) {
  if (threads == 1) {
    distinct_ += add_range(batch, coefficients, offset, 0, dimension_);
    return;
  }
  const std::size_t parts = 4 * static_cast<std::size_t>(threads > 0 ? threads : default_threads());
  const auto borders = balanced_borders(batch, offset, parts, dimension_);
  parallel_for(threads, borders.size() - 1, [&](std::size_t part) {
    if (borders[part] == borders[part + 1]) return;
    const std::uint64_t fresh = add_range(batch, coefficients, offset, borders[part], borders[part + 1]);
    std::atomic_ref(distinct_).fetch_add(fresh, std::memory_order_relaxed);
  });
}

void GradientAccumulator::ask_for(std::uint64_t offset, std::span<const std::uint32_t> indices) {
  for (const std::uint32_t index : indices.first(std::min(indices.size(), kAhead))) {
    __builtin_prefetch(&sums_[offset + index], 1);
  }
}

template <class Value>
std::uint64_t GradientAccumulator::add_row(std::uint64_t offset, std::span<const std::uint32_t> indices, Value value) {
  std::uint64_t fresh = 0;
  for (std::size_t i = 0; i < indices.size(); ++i) {
    if (i + kAhead < indices.size()) __builtin_prefetch(&sums_[offset + indices[i + kAhead]], 1);
    fresh += put(offset + indices[i], value(i));
  }
  return fresh;
}

std::uint64_t GradientAccumulator::add_range(const Batch& batch, std::span<const float> coefficients,
                                             std::uint64_t offset, std::uint64_t begin, std::uint64_t end) {
  const bool is_whole = begin == 0 && end == dimension_;
  std::uint64_t fresh = 0;
  for (std::size_t row = 0; row < batch.size(); ++row) {
    const float coefficient = coefficients[row];
    if (coefficient == 0) continue;
    const RowView view = batch.rows[row];
    if (is_whole && row + 1 < batch.size()) ask_for(offset, batch.rows[row + 1].indices);
    std::size_t i = 0, stop = view.indices.size();
    if (!is_whole) {
      const auto position = [&](std::uint64_t place) {
        const std::uint64_t index = place > offset ? place - offset : 0;
        return static_cast<std::size_t>(std::lower_bound(view.indices.begin(), view.indices.end(), index) -
                                        view.indices.begin());
      };
      i = position(begin);
      stop = position(end);
    }
    const auto indices = view.indices.subspan(i, stop - i);
    if (view.values.empty()) {
      fresh += add_row(offset, indices, [=](std::size_t) { return coefficient; });
    } else {
      fresh += add_row(offset, indices, [=](std::size_t at) { return coefficient * view.values[i + at]; });
    }
  }
  return fresh;
}

// Visits the words of touched_ that have a bit, and clears the upper bitmaps.
template <class Visit>
void GradientAccumulator::walk(Visit visit) {
  for (std::size_t top = 0; top < touched_groups_.size(); ++top) {
    for_each_bit(std::exchange(touched_groups_[top], 0), [&](std::uint64_t middle) {
      const std::uint64_t group = top * 64 + middle;
      for_each_bit(std::exchange(touched_words_[group], 0), [&](std::uint64_t low) { visit(group * 64 + low); });
    });
  }
}

AnyStream GradientAccumulator::take(std::span<const float> tail) {
  const std::uint64_t total = std::exchange(distinct_, 0) + tail.size(), dimension = dimension_ + tail.size();
  Buffer index_buffer = Buffer::allocate(total * sizeof(std::uint32_t));
  Buffer value_buffer = Buffer::allocate(total * sizeof(float));
  std::uint32_t* indices = index_buffer.as_mutable<std::uint32_t>().data();
  float* values = value_buffer.as_mutable<float>().data();
  walk([&](std::uint64_t word) {
    for_each_bit(std::exchange(touched_[word], 0), [&](std::uint64_t low) {
      const std::uint64_t place = word * 64 + low;
      *indices++ = static_cast<std::uint32_t>(place);
      *values++ = std::exchange(sums_[place], 0.0f);
    });
  });
  for (std::size_t i = 0; i < tail.size(); ++i) {
    *indices++ = static_cast<std::uint32_t>(dimension_ + i);
    *values++ = tail[i];
  }
  return AnyStream::sparse(ValueType::f32, dimension, {0, dimension}, std::move(index_buffer), std::move(value_buffer));
}

}  // namespace tulle::linear
