// Who is no member is refused and disturbs nobody; a member that has lost its mind is named and does no harm.
#include <poll.h>

#include "base/little_endian.hpp"
#include "comm/tcp/timed_io.hpp"
#include "comm_tcp/tcp_fixture.hpp"
#include "tulle/base/crc32c.hpp"

namespace tulle::testing {
namespace {

std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

Fd connect_to(const SocketAddress& address) {
  Fd fd = begin_connect(address);
  EXPECT_TRUE(wait_for(fd.get(), POLLOUT, Deadline(5)));
  return fd;
}

// True when the other side has hung up.
bool is_hung_up_on(int fd) {
  char byte = 0;
  return wait_for(fd, POLLIN, Deadline(10)) && ::recv(fd, &byte, 1, 0) <= 0;
}

// Two ranks that have not connected yet, so that their doors are open; `stranger` gets the card of rank 0.
std::vector<std::string> visit(const std::function<std::string(const Card&)>& words_of_stranger) {
  std::vector<std::string> refusals;
  Lobby lobby(2);
  run_ranks(2, [&](int rank) {
    LobbyRendezvous rendezvous(lobby, rank);
    TcpOptions options{.lazy_above = 1};
    if (rank == 0) {
      options.on_refusal = [&](const std::string& address, const std::string& reason) {
        EXPECT_TRUE(address.starts_with("127.0.0.1:")) << address;
        refusals.push_back(reason);
      };
    }
    TcpRank self(rendezvous, options);
    if (rank == 0) {
      const Card& card = self.transport.card_of(0);
      const Fd stranger = connect_to(card.addresses.front());
      EXPECT_TRUE(send_whole(stranger.get(), words_of_stranger(card), Deadline(5)));
      EXPECT_TRUE(self.progress_until([&] { return !refusals.empty(); }));
      EXPECT_TRUE(is_hung_up_on(stranger.get()));
    }
    EXPECT_TRUE(self.meet_all());
    EXPECT_TRUE(self.sink.failures.empty());
  });
  return refusals;
}

Hello call_of_rank_1(const Card& card) { return {.from = 1, .to = 0, .token = card.token}; }

TEST(TcpStrangers, WhoSendGarbageAreRefused) {
  EXPECT_EQ(
      visit([](const Card&) { return "GET / HTTP/1.1\r\nHost: here\r\nUser-Agent: somebody who is lost\r\n\r\n"; }),
      std::vector<std::string>{"it does not speak Tulle"});
}

TEST(TcpStrangers, WithAWrongTokenAreRefused) {
  EXPECT_EQ(visit([](const Card& card) {
              Hello hello = call_of_rank_1(card);
              hello.token.back() ^= std::byte{1};
              return text_of(encode_hello(hello));
            }),
            std::vector<std::string>{"its token is wrong"});
}

TEST(TcpStrangers, OfAnotherVersionAreRefused) {
  EXPECT_EQ(visit([](const Card& card) {
              auto bytes = encode_hello(call_of_rank_1(card));
              store_at(std::span<std::byte>(bytes), 8, std::uint32_t{77});
              return text_of(bytes);
            }),
            std::vector<std::string>{"it speaks version 77, this rank speaks 2"});
}

TEST(TcpStrangers, WhoAreNoRankOrMeanAnotherAreRefused) {
  for (const auto& [from, to, reason] :
       {std::tuple(7, 0, "it is no rank"), std::tuple(0, 0, "it is no rank"), std::tuple(-1, 0, "it is no rank"),
        std::tuple(1, 1, "it is rank 1 and wants rank 1")}) {
    EXPECT_EQ(visit([&, from = from, to = to](const Card& card) {
                return text_of(encode_hello({.from = from, .to = to, .token = card.token}));
              }),
              std::vector<std::string>{reason});
  }
}

TEST(TcpStrangers, WhoAnswerInsteadOfCallingAreRefused) {
  EXPECT_EQ(visit([](const Card& card) {
              Hello hello = call_of_rank_1(card);
              hello.kind = Hello::Kind::welcome;
              return text_of(encode_hello(hello));
            }),
            std::vector<std::string>{"it says the wrong thing"});
}

TEST(TcpStrangers, WhoSayNothingKeepNobodyFromConnecting) {
  Lobby lobby(2);
  std::vector<Fd> silent;
  run_ranks(2, [&](int rank) {
    LobbyRendezvous rendezvous(lobby, rank);
    TcpRank self(rendezvous, {.lazy_above = 1});
    if (rank == 0) {
      for (int i = 0; i < 100; ++i) silent.push_back(connect_to(self.transport.card_of(0).addresses.front()));
    }
    EXPECT_TRUE(self.meet_all());
  });
}

// ---------------------------------------------------------------- a member that has lost its mind

// Rank 1 of two by hand: it connects as a member does and then sends `words`. Gives what rank 0 says about it.
std::string failure_after(const std::function<std::string()>& words, const TcpOptions& options = {}) {
  std::string reason;
  Lobby lobby(2);
  run_ranks(2, [&](int rank) {
    LobbyRendezvous rendezvous(lobby, rank);
    if (rank == 0) {
      TcpRank self(rendezvous, options);
      EXPECT_TRUE(self.await_failure());
      if (!self.sink.failures.empty()) reason = self.sink.failures[0].second;
      EXPECT_EQ(self.sink.failures.size(), 1u);
      EXPECT_TRUE(self.sink.messages.empty());
      return;
    }
    const Token token = random_token();
    const auto cards = rendezvous.allgather(encode_card(
        {.detach_bytes = options.detach_bytes, .pull_bytes = options.pull_bytes, .host = "elsewhere", .token = token}));
    const Card card = decode_card(cards[0], 0);
    const Fd fd = connect_to(card.addresses.front());
    EXPECT_TRUE(send_whole(fd.get(), text_of(encode_hello(call_of_rank_1(card))), Deadline(5)));
    const auto answer = receive_whole(fd.get(), kHelloBytes, Deadline(5));
    ASSERT_TRUE(answer);
    const auto hello = decode_hello(std::as_bytes(std::span(*answer)).first<kHelloBytes>());
    EXPECT_TRUE(std::get<Hello>(hello).token == token);
    EXPECT_TRUE(send_whole(fd.get(), words(), Deadline(5)));
    EXPECT_TRUE(is_hung_up_on(fd.get()));
  });
  return reason;
}

std::string frame_of(const Message& message, std::uint64_t number = 0) {
  return text_of(encode_frame_prefix({.head_bytes = static_cast<std::uint32_t>(message.head.size()),
                                      .number = number,
                                      .head_checksum = crc32c(message.head.bytes())})) +
         text_of(message.head.bytes());
}

// With a checksum that is right, as of a program that is wrong.
std::string prefix_with(std::size_t at, char value) {
  auto bytes = encode_frame_prefix({.head_bytes = kMessageHeaderBytes});
  bytes[at] = static_cast<std::byte>(value);
  store_at(std::span<std::byte>(bytes), kFramePrefixBytes - 4, crc32c(std::span(bytes).first(kFramePrefixBytes - 4)));
  return text_of(bytes);
}

TEST(TcpStrangers, AMemberThatSendsNoFramesIsNamed) {
  EXPECT_TRUE(contains(failure_after([] { return std::string(100, 'x'); }), "the prefix of a frame"));
  EXPECT_TRUE(contains(failure_after([] { return prefix_with(0, 'x'); }), "frame field 'kind': 120"));
  EXPECT_TRUE(contains(failure_after([] { return prefix_with(1, '\2'); }), "frame field 'flags': 2"));
  EXPECT_TRUE(contains(failure_after([] { return prefix_with(3, '\1'); }), "frame field 'zeros'"));
}

TEST(TcpStrangers, AMemberThatAnnouncesTooMuchIsNamedAndGetsNoMemory) {
  EXPECT_TRUE(contains(failure_after([] { return text_of(encode_frame_prefix({.head_bytes = 0xffffffff})); }),
                       "frame field 'head_bytes'"));
  const std::uint64_t before = pool_stats().cached_bytes;
  const auto huge = [](std::size_t bytes) { return frame_of(message_of({Buffer::phantom(bytes)})); };
  EXPECT_TRUE(contains(failure_after([&] { return huge(std::size_t{1} << 47); }), "this rank takes up to"));
  EXPECT_TRUE(contains(failure_after([&] { return huge(2'000'000); }, {.most_message_bytes = 1'000'000}),
                       "a message of 2000000 bytes is announced, this rank takes up to 1000000"));
  EXPECT_LT(pool_stats().cached_bytes, before + 10'000'000);
}

TEST(TcpStrangers, AMemberThatSendsABrokenHeadIsNamed) {
  EXPECT_TRUE(contains(failure_after([] {
                         std::string frame = frame_of(message_of_lengths({10}, 1));
                         frame[kFramePrefixBytes + 20] ^= 1;
                         return frame;
                       }),
                       "the head of a frame"));
  EXPECT_TRUE(contains(failure_after([] {
                         std::string head = text_of(message_of_lengths({10}, 1).head.bytes());
                         head[20] ^= 1;
                         const auto bytes = static_cast<std::uint32_t>(head.size());
                         return text_of(encode_frame_prefix(
                                    {.head_bytes = bytes, .head_checksum = crc32c(std::as_bytes(std::span(head)))})) +
                                head;
                       }),
                       "message field"));
  EXPECT_TRUE(contains(failure_after([] {
                         const Message message = message_of_lengths({10}, 1);
                         const std::string head = text_of(message.head.bytes()) + std::string(8, '\0');
                         const auto bytes = static_cast<std::uint32_t>(head.size());
                         return text_of(encode_frame_prefix(
                                    {.head_bytes = bytes, .head_checksum = crc32c(std::as_bytes(std::span(head)))})) +
                                head;
                       }),
                       "frame field 'head_bytes'"));
}

TEST(TcpStrangers, AMemberThatAcknowledgesWhatNobodySentIsNamed) {
  EXPECT_TRUE(
      contains(failure_after([] { return text_of(encode_frame_prefix({.kind = FrameKind::pulled, .number = 5})); }),
               "no message 5 waits to be pulled"));
}

TEST(TcpStrangers, AMemberThatOffersMemoryThatIsNotThereIsNamed) {
  EXPECT_TRUE(
      contains(failure_after([] { return frame_of(message_of({Buffer::phantom(100'000)}), 1) + std::string(8, '\1'); }),
               "its memory cannot be read"));
}

TEST(TcpStrangers, AMemberThatEndsInsideOfAFrameIsNamed) {
  Lobby lobby(2);
  run_ranks(2, [&](int rank) {
    LobbyRendezvous rendezvous(lobby, rank);
    if (rank == 0) {
      TcpRank self(rendezvous);
      ASSERT_TRUE(self.await_failure());
      EXPECT_TRUE(contains(self.sink.failures[0].second, "without a goodbye")) << self.sink.failures[0].second;
      return;
    }
    const auto cards = rendezvous.allgather(encode_card(
        {.detach_bytes = TcpOptions().detach_bytes, .pull_bytes = TcpOptions().pull_bytes, .host = "elsewhere"}));
    const Card card = decode_card(cards[0], 0);
    const Fd fd = connect_to(card.addresses.front());
    send_whole(fd.get(), text_of(encode_hello(call_of_rank_1(card))), Deadline(5));
    receive_whole(fd.get(), kHelloBytes, Deadline(5));
    send_whole(fd.get(), text_of(encode_frame_prefix({.kind = FrameKind::goodbye})) + "abc", Deadline(5));
  });
}

}  // namespace
}  // namespace tulle::testing
