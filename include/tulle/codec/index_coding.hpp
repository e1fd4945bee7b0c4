// Which bytes the indices of a sparse stream travel as.
//
// Every coding is exact. They differ in bytes and speed: docs/codecs.md compares them, docs/wire_format.md gives the
// layouts. k sorted indices out of N carry log2 C(N, k) bits; `rice` comes within 1 % of that for uniform positions.
//
// Threads: the functions keep no state and may be called from any thread; a landing is written by one at a time.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "tulle/base/buffer.hpp"
#include "tulle/stream/stream.hpp"

#pragma GCC visibility push(default)
namespace tulle {

/// How indices travel. Numbers are part of the wire format: never renumber.
enum class IndexCoding : std::uint8_t {
  none = 0,  ///< dense frames have no indices
  raw = 1,
  delta_vbyte = 2,
  bitmap = 3,
  rice = 4,
};
/// Throws bad_message for a number that is none of them.
std::string_view to_string(IndexCoding coding);

/// Exactly the bytes that encode_indices() gives. REQUIRES: as there. At most one pass over the indices.
std::uint64_t encoded_index_bytes(IndexCoding coding, const AnyStream& stream);
/// The coding with the fewest bytes for this stream; of equal ones the faster. Costs what encoded_index_bytes() costs
/// for each. REQUIRES: sparse, not phantom.
IndexCoding smallest_index_coding(const AnyStream& stream);

/// Indices are coded relative to stream.range().begin, except by `raw`, which shares the stream's memory unless that is
/// borrowed. Takes encoded_index_bytes() of memory and a few passes over the indices.
/// REQUIRES: sparse, not phantom, coding != none.
Buffer encode_indices(IndexCoding coding, const AnyStream& stream);

/// Gives nnz strictly increasing indices inside `range`, of index_bytes(dimension) each.
/// Trusts nothing: length, count, order, range, padding bits and trailing bytes are checked, and memory is taken only
/// when the bytes can hold nnz indices. Throws bad_message naming what is wrong.
/// REQUIRES: range.begin <= range.end <= dimension. Indices are written to `landing` where that is given (REQUIRES:
/// room for just as many); where this throws, what it holds is not defined.
Buffer decode_indices(IndexCoding coding, std::span<const std::byte> bytes, Range range, std::uint64_t dimension,
                      std::uint64_t nnz, Buffer landing = {});

/// Bits an index is expected to take where positions are uniform, for cost models. REQUIRES: 0 < density <= 1.
double expected_index_bits(IndexCoding coding, double density, std::size_t index_width);
/// log2 C(extent, nnz) / nnz: no coding of arbitrary positions does better. 0 where nnz is 0.
double index_entropy_bits(double extent, double nnz);

}  // namespace tulle
#pragma GCC visibility pop
