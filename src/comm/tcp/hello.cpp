#include "comm/tcp/hello.hpp"

#include <fmt/format.h>

#include "base/little_endian.hpp"
#include "comm/tcp/card.hpp"
#include "tulle/base/crc32c.hpp"

namespace tulle {
namespace {

constexpr std::uint64_t kMagic = 0x504354454C4C5554;  // "TULLETCP"
constexpr std::size_t kMagicAt = 0, kVersionAt = 8, kKindAt = 12, kCanPullAt = 13, kFromAt = 16, kToAt = 20,
                      kChecksumAt = 24, kTokenAt = 32;

// Of everything but its own place.
std::uint32_t checksum_of(std::span<const std::byte, kHelloBytes> bytes) {
  return crc32c(bytes.subspan(kChecksumAt + sizeof(std::uint32_t)), crc32c(bytes.first(kChecksumAt)));
}

}  // namespace

std::array<std::byte, kHelloBytes> encode_hello(const Hello& hello) {
  std::array<std::byte, kHelloBytes> bytes = {};
  store_at(std::span<std::byte>(bytes), kMagicAt, kMagic);
  store_at(std::span<std::byte>(bytes), kVersionAt, kTcpVersion);
  store_at(std::span<std::byte>(bytes), kKindAt, hello.kind);
  store_at(std::span<std::byte>(bytes), kCanPullAt, static_cast<std::uint8_t>(hello.can_pull));
  store_at(std::span<std::byte>(bytes), kFromAt, static_cast<std::int32_t>(hello.from));
  store_at(std::span<std::byte>(bytes), kToAt, static_cast<std::int32_t>(hello.to));
  store_at(std::span<std::byte>(bytes), kTokenAt, hello.token);
  store_at(std::span<std::byte>(bytes), kChecksumAt, checksum_of(bytes));
  return bytes;
}

bool may_begin_hello(std::string_view said) {
  const std::string_view magic(reinterpret_cast<const char*>(&kMagic), sizeof kMagic);
  return said.substr(0, magic.size()) == magic.substr(0, said.size());
}

std::variant<Hello, std::string> decode_hello(std::span<const std::byte, kHelloBytes> bytes) {
  if (load_at<std::uint64_t>(bytes, kMagicAt) != kMagic) return "it does not speak Tulle";
  if (const auto version = load_at<std::uint32_t>(bytes, kVersionAt); version != kTcpVersion) {
    return fmt::format("it speaks version {}, this rank speaks {}", version, kTcpVersion);
  }
  if (load_at<std::uint32_t>(bytes, kChecksumAt) != checksum_of(bytes)) return "its hello was damaged on the way";
  const auto kind = load_at<Hello::Kind>(bytes, kKindAt);
  if (kind < Hello::Kind::call || kind > Hello::Kind::later) return "its hello is of no known kind";
  return Hello{.kind = kind,
               .can_pull = load_at<std::uint8_t>(bytes, kCanPullAt) != 0,
               .from = load_at<std::int32_t>(bytes, kFromAt),
               .to = load_at<std::int32_t>(bytes, kToAt),
               .token = load_at<Token>(bytes, kTokenAt)};
}

}  // namespace tulle
