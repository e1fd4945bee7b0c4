#include "server/letters.hpp"

#include <fmt/format.h>

#include <cstring>
#include <span>

#include "base/little_endian.hpp"
#include "tulle/base/crc32c.hpp"

namespace tulle::server {
namespace {

constexpr std::uint8_t kFormat = 2;
constexpr std::size_t kChecksumAt = 36, kAfterChecksum = 40;

[[noreturn]] void refuse(std::string_view field, std::string_view why) {
  throw Error(ErrorKind::bad_message, fmt::format("letter field '{}': {}", field, why));
}

std::uint32_t checksum_of(std::span<const std::byte> head, std::uint32_t checksum_of_body) {
  const std::uint32_t front = crc32c(head.first(kChecksumAt), checksum_of_body);
  return crc32c(head.subspan(kAfterChecksum), front);
}

std::vector<AcceptedPush> accepted_of(std::span<const std::byte> head) {
  std::vector<AcceptedPush> accepted;
  for (std::size_t at = kLetterHeadBytes; at < head.size(); at += kAcceptedBytes) {
    accepted.push_back({load_at<std::uint64_t>(head, at), load_at<std::uint64_t>(head, at + 8)});
  }
  return accepted;
}

void check(std::span<const std::byte> head, std::uint32_t checksum_of_body) {
  if (head.size() < kLetterHeadBytes) refuse("format", "the head is too short");
  if (load_at<std::uint8_t>(head, 0) != kFormat) refuse("format", "is not 2");
  const auto count = load_at<std::uint32_t>(head, 32);
  if (head.size() != kLetterHeadBytes + std::size_t{count} * kAcceptedBytes) refuse("accepted", "has another length");
  if (load_at<std::uint32_t>(head, kChecksumAt) != checksum_of(head, checksum_of_body)) refuse("checksum", "differs");
  const auto kind = load_at<std::uint8_t>(head, 1);
  if (kind < static_cast<std::uint8_t>(LetterKind::join) || kind > static_cast<std::uint8_t>(LetterKind::refusal)) {
    refuse("kind", "is unknown");
  }
}

}  // namespace

std::uint64_t Body::bytes() const {
  std::uint64_t bytes = 0;
  for (const Buffer& segment : segments) bytes += segment.size();
  return bytes;
}

Body body_of(Segments segments) {
  Body body{.segments = std::move(segments)};
  for (const Buffer& segment : body.segments) body.checksum = crc32c(segment.bytes(), body.checksum);
  return body;
}

Body body_of(std::string_view text) {
  Segments segments;
  segments.push_back(Buffer::copy_of(std::as_bytes(std::span(text))));
  return body_of(std::move(segments));
}

std::string text_of(const Segments& body) {
  std::string text;
  for (const Buffer& segment : body) text.append(reinterpret_cast<const char*>(segment.data()), segment.size());
  return text;
}

Segments encode_letter(const LetterHead& head, const Body& body) {
  Buffer buffer = Buffer::allocate(kLetterHeadBytes + head.accepted.size() * kAcceptedBytes);
  const std::span<std::byte> bytes = buffer.as_mutable<std::byte>();
  store_at<std::uint8_t>(bytes, 0, kFormat);
  store_at<std::uint8_t>(bytes, 1, static_cast<std::uint8_t>(head.kind));
  store_at<std::uint16_t>(bytes, 2, head.life);
  store_at<std::uint32_t>(bytes, 4, head.parameter);
  store_at<std::uint64_t>(bytes, 8, head.sequence);
  store_at<std::uint64_t>(bytes, 16, head.version);
  store_at<std::uint64_t>(bytes, 24, head.push);
  store_at<std::uint32_t>(bytes, 32, static_cast<std::uint32_t>(head.accepted.size()));
  store_at<double>(bytes, kAfterChecksum, head.weight);
  std::size_t at = kLetterHeadBytes;
  for (const AcceptedPush& accepted : head.accepted) {
    store_at<std::uint64_t>(bytes, at, accepted.worker);
    store_at<std::uint64_t>(bytes, at + 8, accepted.push);
    at += kAcceptedBytes;
  }
  store_at<std::uint32_t>(bytes, kChecksumAt, checksum_of(bytes, body.checksum));
  Segments segments;
  segments.push_back(std::move(buffer));
  segments.insert(segments.end(), body.segments.begin(), body.segments.end());
  return segments;
}

Letter decode_letter(int from, Segments segments) {
  if (segments.empty()) refuse("format", "there is no head");
  const Buffer buffer = segments.front();
  segments.erase(segments.begin());
  Body body = body_of(std::move(segments));
  const std::span<const std::byte> head = buffer.bytes();
  check(head, body.checksum);
  Letter letter{.from = from, .head = {}, .body = std::move(body.segments)};
  letter.head.kind = static_cast<LetterKind>(load_at<std::uint8_t>(head, 1));
  letter.head.parameter = load_at<std::uint32_t>(head, 4);
  letter.head.sequence = load_at<std::uint64_t>(head, 8);
  letter.head.version = load_at<std::uint64_t>(head, 16);
  letter.head.push = load_at<std::uint64_t>(head, 24);
  letter.head.accepted = accepted_of(head);
  letter.head.life = load_at<std::uint16_t>(head, 2);
  letter.head.weight = load_at<double>(head, kAfterChecksum);
  return letter;
}

}  // namespace tulle::server
