#include "comm/tcp/frame.hpp"

#include <fmt/format.h>

#include "base/little_endian.hpp"
#include "tulle/base/crc32c.hpp"
#include "tulle/base/error.hpp"
#include "tulle/comm/message.hpp"

namespace tulle {
namespace {

constexpr std::size_t kKindAt = 0, kFlagsAt = 1, kZerosAt = 2, kHeadBytesAt = 4, kNumberAt = 8, kHeadChecksumAt = 16,
                      kChecksumAt = 20;
constexpr std::uint8_t kHasTrailer = 1;

// The longest head: a table of 65535 lengths and a checksum.
constexpr std::size_t kMostHeadBytes = kMessageHeaderBytes + 8 * 65536;

[[noreturn]] void reject(std::string_view field, std::uint64_t value) {
  throw Error(ErrorKind::bad_message, fmt::format("frame field '{}': {} is not allowed", field, value));
}

}  // namespace

void require_checksum(std::uint32_t actual, std::uint32_t expected, const char* part) {
  if (actual == expected) return;
  throw Error(
      ErrorKind::bad_message,
      fmt::format("bytes were damaged on the way: the {} of a frame has the checksum {:08x} and should have {:08x}",
                  part, actual, expected));
}

std::array<std::byte, kFramePrefixBytes> encode_frame_prefix(const FramePrefix& prefix) {
  std::array<std::byte, kFramePrefixBytes> bytes = {};
  store_at(std::span<std::byte>(bytes), kKindAt, prefix.kind);
  store_at(std::span<std::byte>(bytes), kFlagsAt, prefix.has_trailer ? kHasTrailer : std::uint8_t{0});
  store_at(std::span<std::byte>(bytes), kHeadBytesAt, prefix.head_bytes);
  store_at(std::span<std::byte>(bytes), kNumberAt, prefix.number);
  store_at(std::span<std::byte>(bytes), kHeadChecksumAt, prefix.head_checksum);
  store_at(std::span<std::byte>(bytes), kChecksumAt, crc32c(std::span(bytes).first(kChecksumAt)));
  return bytes;
}

FramePrefix decode_frame_prefix(std::span<const std::byte, kFramePrefixBytes> bytes) {
  require_checksum(crc32c(bytes.first(kChecksumAt)), load_at<std::uint32_t>(bytes, kChecksumAt), "prefix");
  const auto flags = load_at<std::uint8_t>(bytes, kFlagsAt);
  const FramePrefix prefix{.kind = load_at<FrameKind>(bytes, kKindAt),
                           .has_trailer = flags == kHasTrailer,
                           .head_bytes = load_at<std::uint32_t>(bytes, kHeadBytesAt),
                           .number = load_at<std::uint64_t>(bytes, kNumberAt),
                           .head_checksum = load_at<std::uint32_t>(bytes, kHeadChecksumAt)};
  if (prefix.kind < FrameKind::message || prefix.kind > FrameKind::goodbye) {
    reject("kind", static_cast<std::uint64_t>(prefix.kind));
  }
  if (flags > kHasTrailer || (flags != 0 && prefix.kind != FrameKind::message)) reject("flags", flags);
  for (std::size_t at = kZerosAt; at < kHeadBytesAt; ++at) {
    if (bytes[at] != std::byte{0}) reject("zeros", std::to_integer<std::uint64_t>(bytes[at]));
  }
  const bool fits = prefix.kind == FrameKind::message
                        ? prefix.head_bytes >= kMessageHeaderBytes && prefix.head_bytes <= kMostHeadBytes
                        : prefix.head_bytes == 0;
  if (!fits) reject("head_bytes", prefix.head_bytes);
  if (prefix.kind == FrameKind::pulled && prefix.number == 0) reject("number", 0);
  return prefix;
}

}  // namespace tulle
