// The stream of a TCP connection, in pieces of any length: frames become messages, or are refused.
#include "comm/tcp/inbox.hpp"

#include <sys/socket.h>
#include <unistd.h>

#include "fuzz/fuzz.hpp"

using namespace tulle;

namespace {

constexpr Inbox::Settings kSettings{.limits = {.detach_bytes = 16, .pull_bytes = 64}, .most_message_bytes = 1 << 16};

// Reads every byte that it is given, so that memory that was never written is noticed where it can be.
class Reader final : public InboxOwner {
 public:
  Buffer landing_for(int, std::span<const std::byte>, std::span<const Buffer> arrived, std::size_t segment,
                     std::uint64_t bytes) override {
    fuzz::require(segment < arrived.size() && bytes >= kSettings.limits.detach_bytes, "only large segments are placed");
    return {};
  }
  void take_message(int, Message message) override { read(message); }
  void take_pull_order(int, PullOrder order) override {
    fuzz::require(order.number != 0 && !order.pieces.empty(), "what is pulled has a number");
    for (const PullOrder::Piece& piece : order.pieces) {
      fuzz::require(piece.bytes >= kSettings.limits.pull_bytes, "only large segments are pulled");
      std::fill_n(piece.to, piece.bytes, std::byte{1});
    }
    read(order.message);
  }
  void take_pulled(int, std::uint64_t) override {}
  void take_goodbye(int) override {}

 private:
  static void read(const Message& message) {
    const MessageHeader header = decode_message_header(message.head.bytes());
    std::uint64_t bytes = 0;
    std::uint32_t checksum = 0;
    for (const Buffer& segment : message.segments) {
      bytes += segment.size();
      checksum = crc32c(segment.bytes(), checksum);
    }
    fuzz::require(bytes == header.payload_bytes, "a message has the bytes that it announced");
  }
};

// Makes the checksums right, frame by frame, as far as the bytes are frames.
void mend(fuzz::Bytes& stream) {
  const auto store = [&](std::size_t at, std::span<const std::byte> covered) {
    store_at(std::span<std::byte>(stream), at, crc32c(covered));
  };
  std::span<const std::byte> rest = stream;
  while (rest.size() >= kFramePrefixBytes) {
    const auto at = static_cast<std::size_t>(rest.data() - stream.data());
    const bool has_trailer = rest[1] == std::byte{1};
    const auto head_bytes = load_at<std::uint32_t>(rest, 4);
    if (head_bytes >= kMessageHeaderBytes && head_bytes <= rest.size() - kFramePrefixBytes) {
      store(at + kFramePrefixBytes + kMessageHeaderBytes - 4, rest.subspan(kFramePrefixBytes, kMessageHeaderBytes - 4));
      store(at + 16, rest.subspan(kFramePrefixBytes, head_bytes));
    }
    store(at + 20, rest.first(20));
    const FramePrefix prefix = decode_frame_prefix(rest.first<kFramePrefixBytes>());
    rest = rest.subspan(kFramePrefixBytes);
    if (prefix.kind != FrameKind::message) continue;
    if (rest.size() < prefix.head_bytes) return;
    const auto head = rest.first(prefix.head_bytes);
    std::uint64_t bytes = 0;
    for (const std::uint64_t length : decode_segment_table(decode_message_header(head), head)) {
      bytes += kSettings.limits.way_of(length, prefix.number != 0) == Way::pulled ? 8 : length;
    }
    rest = rest.subspan(prefix.head_bytes);
    const std::size_t trailer = has_trailer ? kFrameTrailerBytes : 0;
    if (rest.size() < trailer || rest.size() - trailer < bytes) return;
    if (has_trailer) store(static_cast<std::size_t>(rest.data() - stream.data()) + bytes, rest.first(bytes));
    rest = rest.subspan(bytes + trailer);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::Input input(data, size);
  const std::size_t piece = 1 + input.take<std::uint8_t>();
  fuzz::Bytes stream = input.rest();
  fuzz::decode_hostile([&] { mend(stream); });
  int ends[2];
  fuzz::require(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) == 0, "there are sockets");
  fuzz::decode_hostile([&] {
    Inbox inbox(1, kSettings);
    Reader reader;
    std::array<std::byte, 48> scratch;
    for (std::size_t at = 0; at < stream.size(); at += piece) {
      const fuzz::Bytes bytes(stream.begin() + static_cast<std::ptrdiff_t>(at),
                              stream.begin() + static_cast<std::ptrdiff_t>(std::min(at + piece, stream.size())));
      const auto sent = ::write(ends[0], bytes.data(), bytes.size());
      fuzz::require(sent == static_cast<ssize_t>(bytes.size()), "a socket takes a few bytes");
      while (inbox.read_from(ends[1], scratch, reader) == Inbox::State::more) continue;
    }
  });
  ::close(ends[0]);
  ::close(ends[1]);
  return 0;
}
