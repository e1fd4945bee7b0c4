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

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::Input input(data, size);
  const std::size_t piece = 1 + input.take<std::uint8_t>();
  int ends[2];
  fuzz::require(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) == 0, "there are sockets");
  fuzz::decode_hostile([&] {
    Inbox inbox(1, kSettings);
    Reader reader;
    std::array<std::byte, 48> scratch;
    for (fuzz::Bytes bytes = input.take_bytes(piece); !bytes.empty(); bytes = input.take_bytes(piece)) {
      const auto sent = ::write(ends[0], bytes.data(), bytes.size());
      fuzz::require(sent == static_cast<ssize_t>(bytes.size()), "a socket takes a few bytes");
      while (inbox.read_from(ends[1], scratch, reader) == Inbox::State::more) continue;
    }
  });
  ::close(ends[0]);
  ::close(ends[1]);
  return 0;
}
