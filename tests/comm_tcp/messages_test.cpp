// What is sent arrives, whole and unchanged, however it travels.
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <random>

#include "comm_tcp/tcp_fixture.hpp"

namespace tulle::testing {
namespace {

using Lengths = std::vector<std::size_t>;

// Every rank sends messages of all these shapes to every other and checks theirs.
void exchange_shapes(TcpRank& self, const std::vector<Lengths>& shapes) {
  const int me = self.transport.rank(), ranks = self.transport.size();
  const auto seed_of = [](int from, int to, std::size_t shape) {
    return static_cast<std::uint64_t>(from * 1'000'000 + to * 10'000) + shape * 100;
  };
  for (std::size_t shape = 0; shape < shapes.size(); ++shape) {
    for (int peer = 0; peer < ranks; ++peer) {
      if (peer != me) self.transport.send(peer, message_of_lengths(shapes[shape], seed_of(me, peer, shape)));
    }
  }
  ASSERT_TRUE(self.await_messages(shapes.size() * static_cast<std::size_t>(ranks - 1), 60));
  std::size_t found = 0;
  for (const auto& [source, message] : self.sink.messages) {
    const std::uint64_t seed = decode_message_header(message.head.bytes()).fingerprint;
    const std::size_t shape = seed % 10'000 / 100;
    ASSERT_EQ(seed, seed_of(source, me, shape));
    ASSERT_EQ(message.segments.size(), shapes[shape].size());
    for (std::size_t i = 0; i < shapes[shape].size(); ++i) {
      ASSERT_TRUE(same_bytes(message.segments[i], bytes_with(shapes[shape][i], seed + i)))
          << "segment " << i << " of shape " << shape;
    }
    ++found;
  }
  ASSERT_EQ(found, shapes.size() * static_cast<std::size_t>(ranks - 1));
  ASSERT_TRUE(self.meet_all());
  self.sink.messages.clear();
}

std::vector<Lengths> many_shapes() {
  return {{},
          {0},
          {1},
          {0, 0, 7, 0},
          {56, 400'000},
          {400'000, 56, 70'000, 3},
          {32'767},
          {32'768},
          {65'535},
          {65'536},
          {40'000, 40'001, 40'002},
          Lengths(3000, 5),
          Lengths(20, 33'000),
          {56, 2'000'000, 56, 1'000'001}};
}

TEST(TcpMessages, OfAnyShapeArriveBetweenAnyNumberOfRanks) {
  for (const int ranks : {1, 2, 3, 4, 7}) {
    SCOPED_TRACE(ranks);
    run_tcp(ranks, {}, [](TcpRank& self) { exchange_shapes(self, many_shapes()); });
  }
}

TEST(TcpMessages, ArriveWithoutReadingMemoryToo) {
  run_tcp(3, {.host_reads = HostReads::never}, [](TcpRank& self) {
    for (int peer = 0; peer < 3; ++peer) EXPECT_FALSE(self.transport.is_pulled_by(peer));
    exchange_shapes(self, many_shapes());
  });
}

TEST(TcpMessages, ArriveThroughTinyBuffersInManyPieces) {
  for (const HostReads reads : {HostReads::never, HostReads::where_allowed}) {
    const TcpOptions options{.detach_bytes = 900,
                             .host_reads = reads,
                             .pull_bytes = 1000,
                             .pull_chunk_bytes = 777,
                             .send_buffer_bytes = 1,
                             .receive_buffer_bytes = 100'000};
    run_tcp(3, options, [](TcpRank& self) {
      exchange_shapes(self, {{}, {1}, {100, 899, 900, 901, 999, 1000, 1001}, {30'000, 5, 70'001}, Lengths(200, 950)});
    });
  }
}

TEST(TcpMessages, OfRandomShapesArriveWithRandomLimits) {
  std::mt19937 random(7);
  const auto below = [&](std::uint32_t limit) { return static_cast<std::size_t>(random() % limit); };
  for (int round = 0; round < 10; ++round) {
    SCOPED_TRACE(round);
    TcpOptions options{.detach_bytes = 1 + below(5000)};
    options.pull_bytes = options.detach_bytes + below(5000);
    options.pull_chunk_bytes = 1 + below(10'000);
    options.host_reads = below(2) == 0 ? HostReads::never : HostReads::where_allowed;
    options.send_buffer_bytes = below(2) == 0 ? 1 : 0;
    std::vector<Lengths> shapes(20);
    for (Lengths& shape : shapes) {
      shape.resize(below(12));
      for (std::size_t& length : shape) length = below(3) == 0 ? below(20) : below(12'000);
    }
    run_tcp(3, options, [&](TcpRank& self) { exchange_shapes(self, shapes); });
  }
}

TEST(TcpMessages, LandWhereTheReceiverWantsThemOnceWhatComesInFrontIsThere) {
  for (const HostReads reads : {HostReads::never, HostReads::where_allowed}) {
    run_tcp(2, {.host_reads = reads}, [](TcpRank& self) {
      const Buffer result = Buffer::allocate(1'000'000);
      bool was_asked = false;
      self.sink.landing = [&](std::span<const Buffer> arrived, std::size_t segment, std::uint64_t bytes) {
        if (segment == 3) return Buffer::allocate(bytes + 1);  // of a wrong length: ignored
        EXPECT_EQ(segment, 1u);
        EXPECT_TRUE(same_bytes(arrived[0], bytes_with(56, 5)));
        EXPECT_TRUE(arrived[1].empty());
        EXPECT_TRUE(same_bytes(arrived[2], bytes_with(9, 7)));
        EXPECT_TRUE(arrived[3].empty());
        was_asked = true;
        return result.slice(1000, bytes);
      };
      self.transport.send(1 - self.transport.rank(), message_of_lengths({56, 400'000, 9, 300'000}, 5));
      ASSERT_TRUE(self.await_messages(1));
      EXPECT_TRUE(was_asked);
      const Segments& segments = self.sink.messages[0].message.segments;
      EXPECT_EQ(segments[1].data(), result.data() + 1000);
      EXPECT_TRUE(same_bytes(segments[1], bytes_with(400'000, 6)));
      EXPECT_TRUE(same_bytes(segments[3], bytes_with(300'000, 8)));
      ASSERT_TRUE(self.meet_all());
    });
  }
}

TEST(TcpMessages, KeepTheirTicketUntilTheReceiverHasReadTheMemory) {
  std::atomic<bool> may_read = false;
  run_tcp(2, {}, [&](TcpRank& self) {
    if (self.transport.rank() == 0) {
      if (!self.transport.is_pulled_by(1)) return;
      auto ticket = std::make_shared<int>(1);
      Message message = message_of_lengths({100, 1'000'000}, 3);
      message.ticket = ticket;
      self.transport.send(1, std::move(message));
      EXPECT_FALSE(self.progress_until([&] { return ticket.use_count() == 1; }, 0.1));
      may_read = true;
      EXPECT_TRUE(self.progress_until([&] { return ticket.use_count() == 1; }));
    } else {
      if (!self.transport.is_pulled_by(0)) return;
      while (!may_read) std::this_thread::yield();
      ASSERT_TRUE(self.await_messages(1));
      EXPECT_TRUE(same_bytes(self.sink.messages[0].message.segments[1], bytes_with(1'000'000, 4)));
    }
  });
}

TEST(TcpMessages, GiveBackTheirTicketsOnceWritten) {
  run_tcp(2, {.host_reads = HostReads::never}, [](TcpRank& self) {
    auto ticket = std::make_shared<int>(1);
    Message message = message_of_lengths({100, 9'000'000}, 3);
    message.ticket = ticket;
    self.transport.send(1 - self.transport.rank(), std::move(message));
    EXPECT_TRUE(self.progress_until([&] { return ticket.use_count() == 1 && !self.sink.messages.empty(); }));
    ASSERT_TRUE(self.meet_all());
  });
}

TEST(TcpMessages, AreReadFromMemoryInThisProcess) {
  run_tcp(2, {}, [](TcpRank& self) {
    EXPECT_TRUE(self.transport.is_pulled_by(1 - self.transport.rank()))
        << "process_vm_readv is refused here; the other tests run on the socket alone";
  });
}

// Memory that is read goes in chunks, so the stream is what has to count this far.
TEST(TcpMessages, OfMoreThan2GiBArrive) {
  const std::uint64_t free_bytes =
      static_cast<std::uint64_t>(sysconf(_SC_AVPHYS_PAGES)) * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  if (free_bytes < (std::uint64_t{10} << 30)) GTEST_SKIP() << "needs 10 GiB of free memory";
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "too slow with a sanitizer";
#endif
  static constexpr std::size_t kBytes = (std::size_t{1} << 31) + 12345;
  run_tcp(2, {.host_reads = HostReads::never}, [](TcpRank& self) {
    if (self.transport.rank() == 0) {
      Segments segments = {Buffer::allocate(kBytes)};
      std::byte* const bytes = segments[0].mutable_data();
      for (std::size_t i = 0; i + 8 <= kBytes; i += 4096) std::memcpy(bytes + i, &i, 8);
      bytes[kBytes - 1] = std::byte{77};
      self.transport.send(1, message_of(std::move(segments)));
    } else {
      ASSERT_TRUE(self.await_messages(1, 60));
      const Buffer& got = self.sink.messages[0].message.segments[0];
      ASSERT_EQ(got.size(), kBytes);
      for (std::size_t i = 0; i + 8 <= kBytes; i += 4096) {
        ASSERT_EQ(std::memcmp(got.data() + i, &i, 8), 0) << "at byte " << i;
      }
      EXPECT_EQ(got.data()[kBytes - 1], std::byte{77});
    }
    ASSERT_TRUE(self.meet_all());
  });
  pool_trim();
}

TEST(TcpMessages, ArriveWhereConnectionsAreMadeOnDemand) {
  for (const int ranks : {2, 3, 5}) {
    for (int round = 0; round < 20; ++round) {  // all call each other at once: calls cross
      run_tcp(ranks, {.lazy_above = 1}, [](TcpRank& self) {
        EXPECT_FALSE(self.transport.is_connected((self.transport.rank() + 1) % self.transport.size()));
        exchange_shapes(self, {{10}, {100'000}, {}, {3, 4}});
        ASSERT_TRUE(self.meet_all());
      });
    }
  }
}

TEST(TcpMessages, WaitForARankThatComputesBeforeItIsFirstCalled) {
  run_tcp(2, {.lazy_above = 1}, [](TcpRank& self) {
    const int other = 1 - self.transport.rank();
    if (self.transport.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(5500));
    self.transport.send(other, message_of_lengths({10}, 1));
    EXPECT_TRUE(self.await_messages(1));
    EXPECT_TRUE(self.meet_all());
  });
}

TEST(TcpMessages, TravelByIpVersion6) {
  Lobby lobby(2);
  if (!error_of([] { listen_at(*SocketAddress::from_numbers("::1", 0), {}); }).starts_with("no error")) {
    GTEST_SKIP() << "there is no IPv6 here";
  }
  run_ranks(2, [&](int rank) {
    LobbyRendezvous rendezvous(lobby, rank);
    TcpRank self(rendezvous, {.interface = "::1", .host_reads = HostReads::never});
    EXPECT_EQ(self.transport.card_of(0).addresses.front().host(), "::1");
    exchange_shapes(self, {{10}, {100'000}});
  });
}

TEST(TcpMessages, StayInThePortRange) {
  Lobby lobby(3);
  run_ranks(3, [&](int rank) {
    LobbyRendezvous rendezvous(lobby, rank);
    TcpRank self(rendezvous, {.ports = "23456-23499"});
    for (int peer = 0; peer < 3; ++peer) {
      EXPECT_GE(self.transport.card_of(peer).addresses.front().port(), 23456);
      EXPECT_LE(self.transport.card_of(peer).addresses.front().port(), 23499);
    }
    exchange_shapes(self, {{10}});
  });
}

TEST(TcpMessages, LeaveWholeWhereTheSenderEndsAtOnce) {
  for (int round = 0; round < 20; ++round) {
    run_tcp(2, {.host_reads = HostReads::never}, [](TcpRank& self) {
      if (self.transport.rank() == 0) {
        for (int i = 0; i < 5; ++i) self.transport.send(1, message_of_lengths({100, 300'000}, 9));
        return;  // ends while the receiver has read nothing
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      EXPECT_TRUE(self.await_messages(5));
      EXPECT_TRUE(self.progress_until([&] { return !self.transport.is_connected(0); }));
      EXPECT_TRUE(self.sink.failures.empty());  // a goodbye is no failure
    });
  }
}

}  // namespace
}  // namespace tulle::testing
