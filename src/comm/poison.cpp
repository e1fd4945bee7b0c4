#include "comm/poison.hpp"

#include "base/little_endian.hpp"
#include "tulle/base/error.hpp"

namespace tulle {
namespace {
constexpr std::size_t kSequenceAt = 4, kRecordBytes = 12;
}

Segments encode_poison(const Poison& poison) {
  Buffer records = Buffer::allocate(kRecordBytes * poison.first_sequences.size());
  std::size_t at = 0;
  for (const auto& [channel, first] : poison.first_sequences) {
    const auto record = records.as_mutable<std::byte>().subspan(at, kRecordBytes);
    store_at(record, 0, channel);
    store_at(record, kSequenceAt, first);
    at += kRecordBytes;
  }
  Segments segments;
  segments.push_back(Buffer::copy_of(std::as_bytes(std::span(poison.reason))));
  segments.push_back(std::move(records));
  return segments;
}

Poison decode_poison(std::span<const Buffer> segments) {
  if (segments.size() != 2 || segments[1].size() % kRecordBytes != 0) {
    throw Error(ErrorKind::bad_message,
                "a message that tells of a failure has other segments than its text and records");
  }
  const std::span<const std::byte> text = segments[0].bytes();
  Poison poison{.reason = std::string(reinterpret_cast<const char*>(text.data()), text.size())};
  for (std::span<const std::byte> rest = segments[1].bytes(); !rest.empty(); rest = rest.subspan(kRecordBytes)) {
    poison.first_sequences[load_at<std::uint32_t>(rest, 0)] = load_at<std::uint64_t>(rest, kSequenceAt);
  }
  return poison;
}

}  // namespace tulle
