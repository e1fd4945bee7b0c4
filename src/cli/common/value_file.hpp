// Files of values: raw arrays, and the coded ones that `tulle encode` writes.
//
// A coded file is a head of 32 bytes and the bytes of encode_values(). docs/codecs.md gives the head byte by byte.
#pragma once

#include <string>

#include "tulle/codec/value_coding.hpp"

namespace tulle::cli {

/// What a coded file holds.
struct CodedFile {
  ValueType type = ValueType::f32;
  ValueCoding coding = ValueCoding::raw;
  std::uint64_t count = 0;
  Buffer bytes;
};

/// The whole file. Throws bad_input or system naming the file.
Buffer read_file(const std::string& path);
/// Throws bad_input where the size is no multiple of `type`'s.
Buffer read_values(const std::string& path, ValueType type);
void write_file(const std::string& path, std::span<const std::byte> head, std::span<const std::byte> body);

void write_coded(const std::string& path, const CodedFile& file);
/// Throws bad_message naming the field where the file is not what write_coded() writes.
CodedFile read_coded(const std::string& path);
/// The same of a file that was read; `path` is for messages.
CodedFile parse_coded(const Buffer& file, const std::string& path);
/// The values. Throws bad_message naming `path` where the bytes are not what the coding gives, and system where the
/// machine has not the memory.
Buffer decode_coded(const CodedFile& file, const std::string& path);

}  // namespace tulle::cli
