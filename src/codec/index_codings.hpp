// What the index codings share: one declaration of each, and the checks that all decoders make.
#pragma once

#include <fmt/format.h>

#include <bit>
#include <string_view>

#include "base/little_endian.hpp"
#include "stream/dispatch.hpp"
#include "tulle/base/error.hpp"
#include "tulle/codec/index_coding.hpp"

namespace tulle {

// One coding, one source file of that name.
#define TULLE_DECLARE_INDEX_CODING(name)                                                                          \
  std::uint64_t name##_bytes(const AnyStream& stream);                                                            \
  Buffer encode_##name(const AnyStream& stream);                                                                  \
  Buffer decode_##name(std::span<const std::byte> bytes, Range range, std::uint64_t dimension, std::uint64_t nnz, \
                       Buffer landing);                                                                           \
  double name##_expected_bits(double density, std::size_t index_width);
TULLE_DECLARE_INDEX_CODING(delta_vbyte)
TULLE_DECLARE_INDEX_CODING(bitmap)
TULLE_DECLARE_INDEX_CODING(rice)
#undef TULLE_DECLARE_INDEX_CODING

[[noreturn]] inline void reject_indices(std::string_view coding, const std::string& why) {
  throw Error(ErrorKind::bad_message, fmt::format("indices coded as {}: {}", coding, why));
}

/// Where a decoder puts its indices: `landing`, or memory of its own.
template <class I>
I* place_indices(Buffer& landing, std::uint64_t nnz) {
  if (landing.empty()) landing = Buffer::allocate(nnz * sizeof(I));
  return reinterpret_cast<I*>(landing.data_for_landing());
}

constexpr std::uint64_t divide_up(std::uint64_t value, std::uint64_t divisor) {
  return value / divisor + (value % divisor != 0);
}

/// Eight bytes from `offset` on as a number; those beyond the end are zero. REQUIRES: offset <= bytes.size().
inline std::uint64_t word_at(std::span<const std::byte> bytes, std::size_t offset) {
  if (bytes.size() - offset >= 8) return load_at<std::uint64_t>(bytes, offset);
  std::uint64_t word = 0;
  if (offset < bytes.size()) std::memcpy(&word, bytes.data() + offset, bytes.size() - offset);
  return word;
}

inline std::uint64_t count_bits(std::span<const std::byte> bytes) {
  std::uint64_t count = 0;
  for (std::size_t offset = 0; offset < bytes.size(); offset += 8) count += std::popcount(word_at(bytes, offset));
  return count;
}

}  // namespace tulle
