#include "comm/mpi/envelope.hpp"

#include <fmt/format.h>

#include <cstring>

#include "tulle/base/error.hpp"

namespace tulle {

Buffer seal_envelope(const Message& message, const MpiOptions& options) {
  EnvelopeWalk measure(message.head.size(), options);
  for (const Buffer& segment : message.segments) measure.place(segment.size());
  if (measure.bytes() == message.head.size()) return message.head;

  Buffer envelope = Buffer::allocate(measure.bytes());
  std::byte* const bytes = envelope.mutable_data();
  std::memcpy(bytes, message.head.data(), message.head.size());
  EnvelopeWalk walk(message.head.size(), options);
  for (const Buffer& segment : message.segments) {
    const std::size_t end = walk.bytes();
    const std::optional<std::size_t> offset = walk.place(segment.size());
    if (!offset || segment.empty()) continue;
    std::memset(bytes + end, 0, *offset - end);
    std::memcpy(bytes + *offset, segment.data(), segment.size());
  }
  return envelope;
}

OpenedEnvelope open_envelope(const Buffer& envelope, const MpiOptions& options) {
  const MessageHeader header = decode_message_header(envelope.bytes());
  OpenedEnvelope opened;
  opened.message.head = envelope.slice(0, message_head_bytes(header));
  opened.lengths = decode_segment_table(header, opened.message.head.bytes());

  EnvelopeWalk walk(opened.message.head.size(), options);
  opened.message.segments.reserve(opened.lengths.size());
  for (const std::uint64_t length : opened.lengths) {
    const std::optional<std::size_t> offset = walk.place(length);
    if (walk.bytes() > envelope.size()) break;
    opened.message.segments.push_back(offset ? envelope.slice(*offset, length) : Buffer());
  }
  if (walk.bytes() != envelope.size()) {
    throw Error(ErrorKind::bad_message,
                fmt::format("message field 'segments': {} bytes arrived, {} or more were announced", envelope.size(),
                            walk.bytes()));
  }
  return opened;
}

}  // namespace tulle
