#include "gradient/accumulate.hpp"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cmath>

#include "tulle/stream/reduction.hpp"

namespace tulle::gradient {
namespace {

constexpr std::uint32_t kMagnitudeBits = 0x7fffffff, kInfinityBits = 0x7f800000;

bool is_finite(float value) { return (std::bit_cast<std::uint32_t>(value) & kMagnitudeBits) < kInfinityBits; }

// The topmost bit is set where the value is not finite: marks of many values are combined by |, without a branch.
std::uint32_t mark_of(float value) {
  constexpr std::uint32_t kTopmostBit = 0x80000000;
  return (std::bit_cast<std::uint32_t>(value) & kMagnitudeBits) + (kTopmostBit - kInfinityBits);
}
bool all_finite(std::uint32_t marks) { return marks >> 31 == 0; }

std::uint32_t marks_of(const float* values, std::size_t count) {
  std::uint32_t marks = 0;
  for (std::size_t i = 0; i < count; ++i) marks |= mark_of(values[i]);
  return marks;
}

// So many partial sums are added in the same order everywhere, whatever the width of vectors.
constexpr std::size_t kLanes = 16, kTile = 4096;

template <class Visit>
void for_each_pair(const AnyStream& stream, Visit visit) {
  const std::span<const float> values = stream.values_buffer().as<float>();
  const auto over = [&]<class I>(std::span<const I> indices) {
    for (std::size_t i = 0; i < indices.size(); ++i) visit(indices[i], values[i]);
  };
  if (stream.index_width() == sizeof(std::uint32_t)) {
    over(stream.indices_buffer().as<std::uint32_t>());
  } else {
    over(stream.indices_buffer().as<std::uint64_t>());
  }
}

// Loops are written once for each way in which they differ inside, so that each becomes plain vector code.
template <bool kWeights, bool kMomentum, bool kEmpty>
bool accumulate_loop(const Accumulation& how, const float* gradient, const float* weights, float* velocity,
                     float* accumulator, std::size_t count) {
  const float factor = how.factor, weight_decay = how.weight_decay, momentum = how.momentum, decay = how.decay;
  const float again = how.nesterov ? 1.0f : 0.0f;
  std::uint32_t marks = 0;
  for (std::size_t i = 0; i < count; ++i) {
    float g = factor * gradient[i];
    if constexpr (kWeights) g += weight_decay * weights[i];
    float added = g;
    if constexpr (kMomentum) {
      velocity[i] = momentum * velocity[i] + g;
      added = velocity[i] + again * g;
    }
    accumulator[i] = kEmpty ? added : decay * accumulator[i] + added;
    marks |= mark_of(accumulator[i]);
  }
  return all_finite(marks);
}

template <bool kWeights, bool kMomentum>
bool accumulate_loops(const Accumulation& how, const float* gradient, const float* weights, float* velocity,
                      float* accumulator, std::size_t count) {
  const auto loop =
      how.starts_empty ? accumulate_loop<kWeights, kMomentum, true> : accumulate_loop<kWeights, kMomentum, false>;
  return loop(how, gradient, weights, velocity, accumulator, count);
}

AnyStream with_values(const AnyStream& stream, Buffer values) {
  if (stream.is_dense()) {
    return AnyStream::dense(ValueType::f32, stream.dimension(), stream.range(), std::move(values));
  }
  return AnyStream::sparse(ValueType::f32, stream.dimension(), stream.range(), stream.indices_buffer(),
                           std::move(values));
}

template <class Function>
AnyStream mapped(const AnyStream& stream, Function function) {
  const std::span<const float> from = stream.values_buffer().as<float>();
  Buffer values = Buffer::allocate(from.size_bytes());
  const std::span<float> to = values.as_mutable<float>();
  for (std::size_t i = 0; i < from.size(); ++i) to[i] = function(from[i]);
  return with_values(stream, std::move(values));
}

// In f32, which is twice as fast as in f64; a few hundred squares at a time lose nothing that a norm is used for.
// Squares leave the range of f32 from 1.8e19 on and below 1e-19.
double sum_of_squares(std::span<const float> tile) {
  float sums[kLanes] = {};
  const std::size_t whole = tile.size() / kLanes * kLanes;
  for (std::size_t i = 0; i < whole; i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) sums[lane] += tile[i + lane] * tile[i + lane];
  }
  for (std::size_t i = whole; i < tile.size(); ++i) sums[i - whole] += tile[i] * tile[i];
  double sum = 0;
  for (const float lane : sums) sum += lane;
  return sum;
}

// Squares of f32 neither overflow f64 nor vanish in it.
double sum_of_squares_in_f64(std::span<const float> values) {
  double sum = 0;
  for (const float value : values) sum += double{value} * value;
  return sum;
}

void subtract_array(float* values, std::span<const float> subtrahend) {
  for (std::size_t i = 0; i < subtrahend.size(); ++i) values[i] -= subtrahend[i];
}

// A tile stays in the cache between the sum of its squares and `visit(first, tile)`.
template <class Visit>
Inspection inspect_tiles(std::span<const float> gradient, Visit visit) {
  double sum = 0;
  for (std::size_t i = 0; i < gradient.size(); i += kTile) {
    const auto tile = gradient.subspan(i, std::min(kTile, gradient.size() - i));
    sum += sum_of_squares(tile);
    visit(i, tile);
  }
  // What squares below the normal numbers of f32 lose of a larger sum than this does not count.
  constexpr double kLeastMeanSquare = 0x1p-100;
  if (sum >= kLeastMeanSquare * static_cast<double>(gradient.size()) && std::isfinite(sum)) return {std::sqrt(sum), {}};
  const auto found = std::ranges::find_if_not(gradient, is_finite);
  if (found == gradient.end()) return {std::sqrt(sum_of_squares_in_f64(gradient)), {}};
  return {sum, static_cast<std::uint64_t>(found - gradient.begin())};
}

// Calls make(i) for every value of `out`, in order. Gives whether all are finite.
template <class Make>
bool write_each(std::span<float> out, const ArrayWriter& writer, Make make) {
  float tile[kTile];
  std::uint32_t marks = 0;
  for (std::size_t first = 0; first < out.size(); first += kTile) {
    const std::size_t count = std::min(kTile, out.size() - first);
    float* const to = writer.is_past_cache() ? tile : &out[first];
    for (std::size_t i = 0; i < count; ++i) to[i] = make(first + i);
    marks |= marks_of(to, count);
    writer.copy(to, &out[first], count);
  }
  return all_finite(marks);
}

bool write_copy(std::span<const float> from, std::span<float> out, const ArrayWriter& writer) {
  std::uint32_t marks = 0;
  for (std::size_t first = 0; first < out.size(); first += kTile) {
    const std::size_t count = std::min(kTile, out.size() - first);
    marks |= marks_of(&from[first], count);
    writer.copy(&from[first], &out[first], count);
  }
  return all_finite(marks);
}

// Multiplying is faster than dividing, and the same where the divisor is a power of two.
bool has_exact_reciprocal(float divisor) {
  int exponent = 0;
  return std::frexp(divisor, &exponent) == 0.5f && std::isfinite(1 / divisor);
}

// Gives `work` the function that divides a value.
template <class Work>
auto with_division(float divisor, Work work) {
  if (has_exact_reciprocal(divisor)) return work([by = 1 / divisor](float value) { return value * by; });
  return work([divisor](float value) { return value / divisor; });
}

bool step_with_momentum(const Recipe& recipe, const AnyStream& sum, float divisor, std::span<float> momentum,
                        std::span<float> out, const ArrayWriter& writer) {
  const auto rate = static_cast<float>(recipe.outer_rate), mu = static_cast<float>(recipe.outer_momentum);
  const float share = recipe.outer == OuterStep::nesterov ? 1.0f : 0.0f;
  const float past = recipe.outer == OuterStep::nesterov ? mu : 1.0f;
  const AnyStream dense = to_dense(sum, Op::sum());
  const float* const values = dense.values_buffer().as<float>().data();
  return with_division(divisor, [&](auto divide) {
    return write_each(out, writer, [=, memory = momentum.data()](std::size_t i) {
      const float update = divide(values[i]);
      memory[i] = mu * memory[i] + update;
      return rate * (share * update + past * memory[i]);
    });
  });
}

// Writes function(value) for each value of the stream, and zeros where it has none.
template <class Function>
bool write_mapped(const AnyStream& stream, std::span<float> out, const ArrayWriter& writer, Function function) {
  if (stream.is_dense()) {
    const float* const values = stream.values_buffer().as<float>().data();
    return write_each(out, writer, [=](std::size_t i) { return function(values[i]); });
  }
  std::ranges::fill(out, 0.0f);
  std::uint32_t marks = 0;
  for_each_pair(stream, [&](std::uint64_t index, float value) {
    out[index] = function(value);
    marks |= mark_of(out[index]);
  });
  return all_finite(marks);
}

}  // namespace

Inspection inspect(std::span<const float> gradient) {
  return inspect_tiles(gradient, [](std::size_t, std::span<const float>) {});
}

Inspection inspect_and_copy(std::span<const float> gradient, std::span<float> copy, const ArrayWriter& writer,
                            float factor) {
  assert(copy.size() == gradient.size());
  return inspect_tiles(gradient, [&](std::size_t first, std::span<const float> tile) {
    if (factor == 1) return writer.copy(tile.data(), &copy[first], tile.size());
    float scaled[kTile];
    for (std::size_t i = 0; i < tile.size(); ++i) scaled[i] = factor * tile[i];
    writer.copy(scaled, &copy[first], tile.size());
  });
}

bool accumulate(const Accumulation& how, std::span<const float> gradient, std::span<const float> weights,
                std::span<float> velocity, std::span<float> accumulator) {
  const bool has_weights = how.weight_decay != 0, has_momentum = how.momentum != 0;
  assert(accumulator.size() == gradient.size());
  assert(!has_weights || weights.size() == gradient.size());
  assert(!has_momentum || velocity.size() == gradient.size());
  if (how.is_copy()) return write_copy(gradient, accumulator, ArrayWriter(gradient.size()));
  const auto loops = has_weights ? (has_momentum ? accumulate_loops<true, true> : accumulate_loops<true, false>)
                                 : (has_momentum ? accumulate_loops<false, true> : accumulate_loops<false, false>);
  return loops(how, gradient.data(), weights.data(), velocity.data(), accumulator.data(), gradient.size());
}

void clear_at(std::span<float> values, const AnyStream& indices) {
  for_each_pair(indices, [&](std::uint64_t index, float) { values[index] = 0; });
}

void put_back(std::span<float> values, const AnyStream& taken) {
  for_each_pair(taken, [&](std::uint64_t index, float value) { values[index] = value; });
}

void put_back_rest(std::span<float> values, const AnyStream& taken, const AnyStream& delivered) {
  assert(taken.nnz() == delivered.nnz());
  const float* less = delivered.values_buffer().as<float>().data();
  for_each_pair(taken, [&](std::uint64_t index, float value) { values[index] = value - *less++; });
}

void subtract(std::span<float> values, const AnyStream& stream) {
  if (!stream.is_dense())
    return for_each_pair(stream, [&](std::uint64_t index, float value) { values[index] -= value; });
  subtract_array(values.data(), stream.values_buffer().as<float>());
}

void scale(std::span<float> values, float factor) {
  for (float& value : values) value *= factor;
}

AnyStream scaled(const AnyStream& stream, float factor, float bound) {
  return mapped(stream, [=](float value) { return factor * std::clamp(value, -bound, bound); });
}

void put_back_excess(std::span<float> values, const AnyStream& taken, float bound) {
  for_each_pair(taken,
                [&](std::uint64_t index, float value) { values[index] = value - std::clamp(value, -bound, bound); });
}

bool write_dense(const AnyStream& stream, float divisor, std::span<float> out, const ArrayWriter& writer) {
  if (stream.is_dense() && divisor == 1) return write_copy(stream.values_buffer().as<float>(), out, writer);
  return with_division(divisor, [&](auto divide) { return write_mapped(stream, out, writer, divide); });
}

bool has_non_finite(const AnyStream& stream) {
  const std::span<const float> values = stream.values_buffer().as<float>();
  return !all_finite(marks_of(values.data(), values.size()));
}

std::uint64_t count_nonzero(std::span<const float> values) {
  return values.size() - static_cast<std::uint64_t>(std::ranges::count(values, 0.0f));
}

AnyStream outer_step(const Recipe& recipe, const AnyStream& sum, float divisor, std::span<float> momentum) {
  const auto rate = static_cast<float>(recipe.outer_rate);
  if (recipe.outer == OuterStep::none && divisor == 1) return sum;
  if (recipe.outer == OuterStep::none) return mapped(sum, [=](float value) { return value / divisor; });
  if (recipe.outer == OuterStep::sgd) return mapped(sum, [=](float value) { return rate * (value / divisor); });
  Buffer values = Buffer::allocate(momentum.size_bytes());
  step_with_momentum(recipe, sum, divisor, momentum, values.as_mutable<float>(), ArrayWriter(momentum.size()));
  return AnyStream::dense(ValueType::f32, sum.dimension(), sum.range(), std::move(values));
}

bool outer_step_into(const Recipe& recipe, const AnyStream& sum, float divisor, std::span<float> momentum,
                     std::span<float> out, const ArrayWriter& writer) {
  const auto rate = static_cast<float>(recipe.outer_rate);
  const bool is_mean = recipe.outer == OuterStep::none || (recipe.outer == OuterStep::sgd && rate == 1);
  if (is_mean) return write_dense(sum, divisor, out, writer);
  if (recipe.outer != OuterStep::sgd) return step_with_momentum(recipe, sum, divisor, momentum, out, writer);
  return with_division(divisor, [&](auto divide) {
    return write_mapped(sum, out, writer, [=](float value) { return rate * divide(value); });
  });
}

}  // namespace tulle::gradient
