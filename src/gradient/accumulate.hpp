// The passes over a gradient before anything is selected, and over an update before it is handed out.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "stream/array_writer.hpp"
#include "tulle/gradient/recipe.hpp"
#include "tulle/stream/stream.hpp"

namespace tulle::gradient {

/// What one pass over a gradient finds.
struct Inspection {
  double norm = 0;                             ///< L2; not finite where a value is not
  std::optional<std::uint64_t> not_finite_at;  ///< the first such index
};

/// One read. The same bits on every processor.
Inspection inspect(std::span<const float> gradient);

/// The same, and a copy of the gradient times `factor`, which is worthless where a value is not finite. One read and
/// one write.
Inspection inspect_and_copy(std::span<const float> gradient, std::span<float> copy, const ArrayWriter& writer,
                            float factor = 1);

/// v ← decay·v + u [+ g], u ← momentum·u + g, g ← factor·gradient + weight_decay·w.
struct Accumulation {
  float factor = 1;  ///< of clipping
  float weight_decay = 0;
  float momentum = 0;
  bool nesterov = false;
  float decay = 1;
  bool starts_empty = false;  ///< v counts as zeros, whatever it holds

  /// Whether it is v ← decay·v + g, which a selector can make in its own pass.
  bool is_sum() const { return factor == 1 && weight_decay == 0 && momentum == 0 && !starts_empty; }
  /// Whether v becomes the gradient.
  bool is_copy() const { return factor == 1 && weight_decay == 0 && momentum == 0 && starts_empty; }
};

/// One pass over all that is given. Gives whether every value of the accumulator is finite now, as the velocities then
/// are. REQUIRES: equal sizes; `velocity` where there is momentum, `weights` where there is
/// weight decay.
bool accumulate(const Accumulation& how, std::span<const float> gradient, std::span<const float> weights,
                std::span<float> velocity, std::span<float> accumulator);

/// Sets `values` to zero where `indices` has one. REQUIRES: a sparse f32 stream.
void clear_at(std::span<float> values, const AnyStream& indices);
/// Puts back what was taken out: assigns, because what was taken left a zero.
void put_back(std::span<float> values, const AnyStream& taken);

/// Puts back what was taken out less what was delivered of it, in one walk. REQUIRES: sparse, of the same indices.
void put_back_rest(std::span<float> values, const AnyStream& taken, const AnyStream& delivered);

/// values ← factor·values.
void scale(std::span<float> values, float factor);

/// The stream's values, those beyond ±bound cut to it, times `factor`.
AnyStream scaled(const AnyStream& stream, float factor, float bound);
/// Puts back what scaled() cuts off.
void put_back_excess(std::span<float> values, const AnyStream& taken, float bound);

/// values −= stream, sparse or dense.
void subtract(std::span<float> values, const AnyStream& stream);

/// `stream` divided by `divisor`, written to `out`; zeros where the stream has nothing. One read and one write. Gives
/// whether all that was written is finite.
bool write_dense(const AnyStream& stream, float divisor, std::span<float> out, const ArrayWriter& writer);
inline bool write_dense(const AnyStream& stream, float divisor, std::span<float> out) {
  return write_dense(stream, divisor, out, ArrayWriter(out.size()));
}
/// Whether a value is NaN or infinite.
bool has_non_finite(const AnyStream& stream);
/// Values that are not zero.
std::uint64_t count_nonzero(std::span<const float> values);

/// The outer step: changes `momentum`, where it has one, and gives what is handed out. The mean is `sum`, sparse or
/// dense, divided by `divisor`; the result is dense where there is momentum, and `sum` itself where nothing is to do.
AnyStream outer_step(const Recipe& recipe, const AnyStream& sum, float divisor, std::span<float> momentum);
/// The same written to `out`, zeros where there is nothing. One pass over all arrays. Gives whether all that was
/// written is finite.
bool outer_step_into(const Recipe& recipe, const AnyStream& sum, float divisor, std::span<float> momentum,
                     std::span<float> out, const ArrayWriter& writer);

}  // namespace tulle::gradient
