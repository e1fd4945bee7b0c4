// Inputs and short texts for the tests of the codings.
#pragma once

#include <cmath>
#include <cstdio>

#include "stream/model.hpp"
#include "tulle/base/philox.hpp"
#include "tulle/codec/registry.hpp"

namespace tulle {

inline void PrintTo(const ValueCodec& codec, std::ostream* out) { *out << to_string(codec); }

}  // namespace tulle

namespace tulle::test {

/// Two digits a byte, a blank between bytes.
inline std::string hex(std::span<const std::byte> bytes) {
  std::string text;
  for (const std::byte byte : bytes) {
    char digits[4];
    std::snprintf(digits, sizeof digits, " %02x", std::to_integer<unsigned>(byte));
    text += digits;
  }
  return text.empty() ? text : text.substr(1);
}

inline Buffer bytes_of(std::initializer_list<unsigned> bytes) {
  Buffer buffer = Buffer::allocate(bytes.size());
  std::transform(bytes.begin(), bytes.end(), buffer.mutable_data(), [](unsigned byte) { return std::byte(byte); });
  return buffer;
}

template <class V>
Buffer buffer_of(std::span<const V> values) {
  return Buffer::copy_of(std::as_bytes(values));
}
template <class V>
Buffer buffer_of(const std::vector<V>& values) {
  return buffer_of(std::span<const V>(values));
}

template <class V>
std::vector<V> vector_of(const Buffer& buffer) {
  return {buffer.as<V>().begin(), buffer.as<V>().end()};
}

/// About Gaussian, with a tenth of exact zeros.
inline std::vector<float> random_floats(std::size_t count, std::uint64_t seed) {
  Philox random(seed);
  std::vector<float> values(count);
  for (float& value : values) {
    double sum = 0;
    for (int i = 0; i < 6; ++i) sum += random.uniform() - 0.5;
    value = random.below(10) == 0 ? 0.0f : static_cast<float>(sum);
  }
  return values;
}

/// Values that the coding takes: of one sign where it wants that.
inline std::vector<float> random_floats_for(ValueCoding coding, std::size_t count, std::uint64_t seed) {
  std::vector<float> values = random_floats(count, seed);
  if (coding == ValueCoding::same_sign_mean) {
    for (float& value : values) value = std::fabs(value);
  }
  return values;
}

/// Every row with its defaults, and the settings that change what the bytes look like.
inline std::vector<ValueCodec> codecs_to_test() {
  std::vector<ValueCodec> codecs;
  for (const ValueCodecRow& row : value_codecs()) codecs.push_back({.coding = row.coding});
  for (const char* text :
       {"qsgd:bits=2", "qsgd:bits=8", "qsgd:norm=max", "qsgd:bits=2,bucket=3", "qsgd:bucket=1000", "int8:bucket=7",
        "int8:bucket=all", "codebook:bits=2", "codebook:bits=3", "codebook:bits=7,sigma=12", "codebook:bits=8",
        "three_lc:s=1.75", "three_lc:zero_runs=off", "one_bit_mqe:bucket=5"}) {
    codecs.push_back(parse_value_codec(text));
  }
  return codecs;
}

inline constexpr RoundingKey kKey{.seed = 1, .rank = 2, .step = 3, .position = 4};

inline Buffer encoded(const ValueCodec& codec, const std::vector<float>& values, const RoundingKey& key = kKey) {
  return encode_values(codec, ValueType::f32, buffer_of(values), key);
}

inline std::vector<float> decoded(ValueCoding coding, const Buffer& bytes, std::size_t count) {
  return vector_of<float>(decode_values(coding, ValueType::f32, bytes.bytes(), count));
}

inline std::vector<float> round_trip(const ValueCodec& codec, const std::vector<float>& values,
                                     const RoundingKey& key = kKey) {
  return decoded(codec.coding, encoded(codec, values, key), values.size());
}

/// Values at `indices` in `range`; what they are does not matter.
template <StreamIndex I>
AnyStream stream_at(std::uint64_t dimension, Range range, const std::vector<I>& indices) {
  const std::vector<float> values(indices.size(), 1.0f);
  return AnyStream::sparse(ValueType::f32, dimension, range, buffer_of(indices), buffer_of(values));
}

}  // namespace tulle::test
