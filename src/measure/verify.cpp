#include "measure/verify.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "tulle/base/crc32c.hpp"
#include "tulle/stream/reduction.hpp"

namespace tulle::measure {
namespace {

// Streams are compared as dense pieces of this size: they stay in the cache, and N may be larger than memory.
constexpr std::uint64_t kPiece = std::uint64_t{1} << 16;

double tolerance(ValueType type, const Op& op, int ranks) {
  if (op.code() != OpCode::prod || is_integer(type)) return 0;
  switch (type) {
    case ValueType::f64: return ranks * std::numeric_limits<double>::epsilon();
    case ValueType::f16: return 0x1p-10;
    case ValueType::bf16: return 0x1p-7;
    default: return ranks * static_cast<double>(std::numeric_limits<float>::epsilon());
  }
}

template <class V>
bool equal_values(std::span<const V> a, std::span<const V> b, double tolerance) {
  if (std::equal(a.begin(), a.end(), b.begin(), b.end())) return true;
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [tolerance](V x, V y) {
    const auto left = static_cast<double>(x), right = static_cast<double>(y);
    return left == right || std::abs(left - right) <= tolerance * std::abs(right);
  });
}

bool pieces_equal(const AnyStream& a, const AnyStream& b, const Op& op, double tolerance) {
  if (a.nnz() == 0 && b.nnz() == 0) return true;
  const ValueType type = compute_type(a.type());
  const AnyStream left = to_dense(convert(a, type), op), right = to_dense(convert(b, type), op);
  return visit_compute_type(
      type, [&]<class V>() { return equal_values(Stream<V>(left).values(), Stream<V>(right).values(), tolerance); });
}

}  // namespace

void SerialReduction::add(int rank) {
  spec_.rank = rank;
  AnyStream input = convert(synthetic_stream(spec_), compute_type(spec_.type));
  sum_ = sum_ ? reduce(std::move(*sum_), std::move(input), op_) : std::move(input);
}

AnyStream SerialReduction::result() const { return convert(*sum_, spec_.type); }

bool means_the_same(const AnyStream& a, const AnyStream& b, const Op& op, int ranks) {
  if (a.type() != b.type() || a.dimension() != b.dimension() || a.range() != b.range()) return false;
  if (a == b) return true;
  const double allowed = tolerance(a.type(), op, ranks);
  const Range range = a.range();
  for (std::uint64_t begin = range.begin; begin < range.end; begin += std::min(kPiece, range.end - begin)) {
    const Range piece{begin, begin + std::min(kPiece, range.end - begin)};
    if (!pieces_equal(slice(a, piece), slice(b, piece), op, allowed)) return false;
  }
  return true;
}

// Coding may leave little of a value, but it does not turn a sum round: unbiased, it keeps the length along the true
// sum, and with a bias of its own still a good part of it.
bool points_the_same_way(const AnyStream& got, const AnyStream& expected) {
  if (got.type() != expected.type() || got.dimension() != expected.dimension()) return false;
  const ValueType type = compute_type(got.type());
  const AnyStream left = to_dense(convert(got, type), Op::sum()), right = to_dense(convert(expected, type), Op::sum());
  return visit_compute_type(type, [&]<class V>() {
    const auto a = Stream<V>(left).values(), b = Stream<V>(right).values();
    const double along = std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
    const double length = std::inner_product(b.begin(), b.end(), b.begin(), 0.0);
    return length == 0 ? along == 0 : along > 0.3 * length && along < 1.7 * length;
  });
}

std::uint32_t bits_of(const AnyStream& stream) {
  const auto layout = static_cast<std::byte>(stream.layout());
  const std::uint32_t of_layout = crc32c({&layout, 1});
  return crc32c(stream.values_buffer().bytes(), crc32c(stream.indices_buffer().bytes(), of_layout));
}

}  // namespace tulle::measure
