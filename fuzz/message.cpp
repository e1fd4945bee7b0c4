// Message heads: header, table of lengths and checksum, then one segment.
#include "tulle/comm/message.hpp"
#include "fuzz/fuzz.hpp"

using namespace tulle;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::Input input(data, size);
  const fuzz::Bytes head = input.take_bytes(input.take<std::uint16_t>());
  const fuzz::Bytes segment = input.rest();
  fuzz::decode_hostile([&] {
    const MessageHeader header = decode_message_header(head);
    fuzz::require(decode_segment_table(header, head).size() == header.segments, "a length for each segment");
    const Buffer segments[] = {Buffer::borrow(segment)};
    validate_segments(header, head, segments);
  });
  return 0;
}
