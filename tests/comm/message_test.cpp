#include "tulle/comm/message.hpp"

#include <gtest/gtest.h>

#include <string>

#include "tulle/base/error.hpp"
#include "tulle/base/philox.hpp"

namespace tulle {
namespace {

Buffer bytes_of(std::string_view text) { return Buffer::copy_of(std::as_bytes(std::span(text))); }

std::string hex(std::span<const std::byte> bytes) {
  std::string text;
  for (const std::byte byte : bytes) {
    constexpr char kDigits[] = "0123456789abcdef";
    text += kDigits[static_cast<unsigned>(byte) >> 4];
    text += kDigits[static_cast<unsigned>(byte) & 15];
  }
  return text;
}

MessageHeader example_header() {
  MessageHeader header;
  header.context = {.allocator = 0x010203, .slot = 0x0405, .generation = 0x0607};
  header.epoch = 0x0809;
  header.channel = 0x0a0b0c;
  header.sequence = 0x212223242526;
  header.step = 0x2728;
  header.fingerprint = 0x1112131415161718;
  header.last_call = 0x31323334;
  return header;
}

TEST(MessageHeader, has_the_documented_bytes) {
  const Segments segments{bytes_of("abc"), bytes_of("defgh")};
  const Buffer head = encode_message_head(example_header(), segments);
  EXPECT_EQ(hex(head.bytes().first(48)),
            "54020100"  // magic, version, kind, flags
            "02002827"  // segments, step
            "030201"
            "0504"  // context: allocator, slot,
            "0706"
            "0908"              // generation; epoch
            "0c0b0a"            // channel
            "262524232221"      // sequence
            "080000000000"      // payload_bytes
            "1817161514131211"  // fingerprint
            "34333231"          // last_call
            "4a3d5584");        // header_checksum
  EXPECT_EQ(hex(head.bytes().subspan(48)),
            "0300000000000000"
            "0500000000000000");  // the table of lengths
}

TEST(MessageHeader, comes_back_as_it_was) {
  const Segments segments{bytes_of("abc"), Buffer(), bytes_of("defgh")};
  MessageHeader header = example_header();
  header.has_checksum = true;
  const Buffer head = encode_message_head(header, segments);
  header.segments = 3;
  header.payload_bytes = 8;
  EXPECT_EQ(decode_message_header(head.bytes()), header);
  EXPECT_NO_THROW(validate_segments(header, head.bytes(), segments));
}

TEST(MessageHeader, is_rejected_whichever_bit_is_flipped) {
  const Segments segments{bytes_of("payload")};
  MessageHeader header = example_header();
  header.has_checksum = true;
  const Buffer head = encode_message_head(header, segments);
  for (std::size_t bit = 0; bit < head.size() * 8; ++bit) {
    Buffer changed = Buffer::copy_of(head.bytes());
    changed.mutable_data()[bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
    EXPECT_THROW(validate_segments(decode_message_header(changed.bytes()), changed.bytes(), segments), Error)
        << "bit " << bit;
  }
}

TEST(MessageHeader, is_rejected_wherever_it_is_cut_off) {
  const Segments segments{bytes_of("payload")};
  const Buffer head = encode_message_head(example_header(), segments);
  for (std::size_t length = 0; length < head.size(); ++length) {
    EXPECT_THROW(decode_message_header(head.bytes().first(length)), Error) << length;
  }
}

TEST(Segments, that_are_cut_missing_or_changed_are_rejected) {
  const Segments segments{bytes_of("abc"), bytes_of("defgh")};
  MessageHeader header = example_header();
  header.has_checksum = true;
  const Buffer head = encode_message_head(header, segments);
  header = decode_message_header(head.bytes());
  EXPECT_THROW(validate_segments(header, head.bytes(), Segments{segments[0]}), Error);
  EXPECT_THROW(validate_segments(header, head.bytes(), Segments{segments[0], segments[1].slice(0, 4)}), Error);
  EXPECT_THROW(validate_segments(header, head.bytes(), Segments{segments[0], bytes_of("defgi")}), Error);
  EXPECT_THROW(validate_segments(header, head.bytes(), Segments{segments[1], segments[0]}), Error);
}

}  // namespace
}  // namespace tulle
