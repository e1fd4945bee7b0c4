// How the bytes of a fuzzer are read, and how a corpus for it is written: a few numbers, then the message.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>
#include <vector>

#include "base/little_endian.hpp"
#include "tulle/base/crc32c.hpp"
#include "tulle/base/error.hpp"

namespace tulle::fuzz {

using Bytes = std::vector<std::byte>;

class Input {
 public:
  Input(const std::uint8_t* data, std::size_t size) : bytes_(reinterpret_cast<const std::byte*>(data), size) {}

  /// The next number; 0 where the input has ended.
  template <class T>
  T take() {
    if (bytes_.size() < sizeof(T)) return bytes_ = {}, T{0};
    const T number = load_at<T>(bytes_, 0);
    bytes_ = bytes_.subspan(sizeof(T));
    return number;
  }
  /// At most `count` bytes, in memory that ends where they end, so that reading beyond them is noticed.
  Bytes take_bytes(std::size_t count) {
    const auto taken = bytes_.first(std::min(count, bytes_.size()));
    bytes_ = bytes_.subspan(taken.size());
    return {taken.begin(), taken.end()};
  }
  Bytes rest() { return take_bytes(bytes_.size()); }

 private:
  std::span<const std::byte> bytes_;
};

/// Ends the process, so that the fuzzer keeps the input.
inline void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "does not hold: %s\n", what);
  std::abort();
}

/// Runs `decode`, which may throw bad_message and nothing else.
template <class Decode>
void decode_hostile(Decode&& decode) {
  try {
    decode();
  } catch (const Error& error) {
    require(error.kind() == ErrorKind::bad_message, error.what());
  }
}

/// Runs `read`, which reads a file: it may throw bad_input, or system where that asks for more memory than there is.
template <class Read>
void read_hostile(Read&& read) {
  try {
    read();
  } catch (const Error& error) {
    require(error.kind() == ErrorKind::bad_input || error.kind() == ErrorKind::system, error.what());
  }
}

/// Puts the checksum of what follows `from` at `place`, where the file is long enough: no fuzzer finds it by itself,
/// and what a checksum protects is to be read as well.
inline void mend_checksum(std::string& file, std::size_t place, std::size_t from, std::size_t end) {
  const std::span bytes = std::as_writable_bytes(std::span(file));
  if (from > end || end > bytes.size() || place + sizeof(std::uint32_t) > bytes.size()) return;
  store_at(bytes, place, crc32c(bytes.subspan(from, end - from)));
}

}  // namespace tulle::fuzz
