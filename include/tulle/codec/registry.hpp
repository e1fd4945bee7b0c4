// The codecs as rows of data, which the command, tests, benchmarks and fuzzers iterate.
//
// Threads: the rows never change, and any thread may read them and call their functions.
#pragma once

#include <span>
#include <string_view>

#include "tulle/codec/index_coding.hpp"
#include "tulle/codec/value_coding.hpp"

#pragma GCC visibility push(default)
namespace tulle {

/// What decoding gives back.
enum class Fidelity {
  exact,     ///< the same bits
  unbiased,  ///< the same on average over rounding keys
  biased,    ///< near; keep what is lost and add it to the next values (error feedback)
};
std::string_view to_string(Fidelity fidelity);

/// Functions as in index_coding.hpp, with the same requirements; decode() does not compare nnz with the range.
struct IndexCodec {
  std::string_view name;
  IndexCoding coding;
  std::string_view summary;
  std::string_view paper;
  std::uint64_t (*bytes)(const AnyStream& stream);
  Buffer (*encode)(const AnyStream& stream);
  Buffer (*decode)(std::span<const std::byte> bytes, Range range, std::uint64_t dimension, std::uint64_t nnz,
                   Buffer landing);
  double (*expected_bits)(double density, std::size_t index_width);
};

/// All but raw compute on f32; encode_values() and decode_values() convert other types on the way, and check the codec,
/// which these functions do not. raw has no functions: they are null.
struct ValueCodecRow {
  std::string_view name;
  ValueCoding coding;
  Fidelity fidelity;
  std::string_view summary;
  std::string_view paper;
  std::string_view options;  ///< fields of ValueCodec that it reads, by their names in texts
  std::uint64_t (*bytes)(const ValueCodec& codec, std::uint64_t count);
  Buffer (*encode)(const ValueCodec& codec, std::span<const float> values, const RoundingKey& key);
  void (*decode)(std::span<const std::byte> bytes, std::span<float> values, int threads);
};

/// All rows. Of index codings, the faster come first.
std::span<const IndexCodec> index_codecs();
std::span<const ValueCodecRow> value_codecs();

/// The fidelity of a row for one type: f32, f16 and bf16 are exact where the type's values all fit. REQUIRES: `coding`
/// is a row's.
Fidelity fidelity_of(ValueCoding coding, ValueType type);

}  // namespace tulle
#pragma GCC visibility pop
