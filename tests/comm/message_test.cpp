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
  header.context = 0x0102;
  header.sequence = 0x03040506;
  header.step = 0x0708;
  header.fingerprint = 0x1112131415161718;
  return header;
}

TEST(MessageHeader, has_the_documented_bytes) {
  const Segments segments{bytes_of("abc"), bytes_of("defgh")};
  const Buffer head = encode_message_head(example_header(), segments);
  // magic version kind flags | context segments | sequence | step | payload_bytes | fingerprint
  EXPECT_EQ(hex(head.bytes().first(28)), "54010100" "02010200" "06050403" "0807" "080000000000" "1817161514131211");
  // then the header's checksum and the table of lengths
  EXPECT_EQ(hex(head.bytes().subspan(32)), "0300000000000000" "0500000000000000");
  EXPECT_EQ(head.size(), 48u);
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
