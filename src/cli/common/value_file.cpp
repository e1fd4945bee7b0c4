#include "cli/common/value_file.hpp"

#include <fmt/format.h>

#include <array>
#include <cerrno>
#include <fstream>
#include <system_error>

#include "base/little_endian.hpp"
#include "base/memory.hpp"
#include "tulle/base/crc32c.hpp"
#include "tulle/base/error.hpp"
#include "tulle/base/positional_reader.hpp"

namespace tulle::cli {
namespace {

constexpr std::size_t kMagicAt = 0, kVersionAt = 4, kTypeAt = 5, kCodingAt = 6, kReservedAt = 7, kCountAt = 8,
                      kBytesAt = 16, kChecksumAt = 24, kHeadChecksumAt = 28, kHeadBytes = 32;
constexpr std::uint32_t kMagic = 0x45564c54;  // "TLVE"
constexpr std::uint8_t kVersion = 1;
// A coding that sends one number for all values cannot show by its bytes that a count is wrong.
constexpr std::uint64_t kMostValues = std::uint64_t{1} << 36;

[[noreturn]] void fail(const std::string& path, std::string_view what) {
  const std::string reason = std::error_code(errno, std::generic_category()).message();
  throw Error(ErrorKind::system, fmt::format("cannot {} '{}': {}", what, path, reason));
}

void require(bool holds, const std::string& path, std::string_view field) {
  if (!holds) throw Error(ErrorKind::bad_message, fmt::format("'{}' is no coded file: bad {}", path, field));
}

}  // namespace

Buffer read_file(const std::string& path) {
  const ReaderPtr reader = open_file(path);
  require_memory(reader->size(), path);
  Buffer buffer = Buffer::allocate(reader->size());
  reader->read_at(0, {buffer.mutable_data(), buffer.size()});
  return buffer;
}

Buffer read_values(const std::string& path, ValueType type) {
  Buffer values = read_file(path);
  if (values.size() % size_of(type) != 0) {
    throw Error(ErrorKind::bad_input, fmt::format("'{}' has {} bytes, which is no multiple of the {} of {}", path,
                                                  values.size(), size_of(type), to_string(type)));
  }
  return values;
}

void write_file(const std::string& path, std::span<const std::byte> head, std::span<const std::byte> body) {
  std::ofstream file(path, std::ios::binary);
  if (!file) fail(path, "create");
  for (const auto part : {head, body}) {
    file.write(reinterpret_cast<const char*>(part.data()), static_cast<std::streamsize>(part.size()));
  }
  file.close();
  if (!file) fail(path, "write");
}

void write_coded(const std::string& path, const CodedFile& values) {
  std::array<std::byte, kHeadBytes> head{};
  store_at<std::uint32_t>(head, kMagicAt, kMagic);
  store_at(head, kVersionAt, kVersion);
  store_at(head, kTypeAt, values.type);
  store_at(head, kCodingAt, values.coding);
  store_at(head, kCountAt, values.count);
  store_at<std::uint64_t>(head, kBytesAt, values.bytes.size());
  store_at(head, kChecksumAt, crc32c(values.bytes.bytes()));
  store_at(head, kHeadChecksumAt, crc32c(std::span(head).first(kHeadChecksumAt)));
  write_file(path, head, values.bytes.bytes());
}

CodedFile read_coded(const std::string& path) { return parse_coded(read_file(path), path); }

CodedFile parse_coded(const Buffer& file, const std::string& path) {
  const auto bytes = file.bytes();
  require(bytes.size() >= kHeadBytes, path, "length: shorter than its head");
  require(load_at<std::uint32_t>(bytes, kMagicAt) == kMagic, path, "magic");
  require(load_at<std::uint8_t>(bytes, kVersionAt) == kVersion, path, "version");
  require(load_at<std::uint32_t>(bytes, kHeadChecksumAt) == crc32c(bytes.first(kHeadChecksumAt)), path,
          "head checksum");
  require(load_at<std::uint8_t>(bytes, kReservedAt) == 0, path, "reserved byte");
  require(is_valid(load_at<ValueType>(bytes, kTypeAt)), path, "type");
  require(load_at<std::uint64_t>(bytes, kBytesAt) == bytes.size() - kHeadBytes, path, "length");
  require(load_at<std::uint32_t>(bytes, kChecksumAt) == crc32c(bytes.subspan(kHeadBytes)), path, "checksum");
  return {.type = load_at<ValueType>(bytes, kTypeAt),
          .coding = load_at<ValueCoding>(bytes, kCodingAt),
          .count = load_at<std::uint64_t>(bytes, kCountAt),
          .bytes = file.slice(kHeadBytes, file.size() - kHeadBytes)};
}

Buffer decode_coded(const CodedFile& file, const std::string& path) {
  if (file.count > kMostValues) {
    throw Error(ErrorKind::bad_message,
                fmt::format("'{}' announces {} values, at most {} are decoded", path, file.count, kMostValues));
  }
  require_memory(file.count * size_of(file.type), path);
  try {
    return decode_values(file.coding, file.type, file.bytes.bytes(), file.count);
  } catch (const Error& error) {
    throw Error(error.kind(), fmt::format("'{}': {}", path, error.what()));
  }
}

}  // namespace tulle::cli
