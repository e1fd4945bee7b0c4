// What goes wrong with a peer is told once, names it, and comes in time.
#include <atomic>

#include "comm_tcp/processes.hpp"
#include "comm_tcp/tcp_fixture.hpp"

namespace tulle::testing {
namespace {

std::string describe_failures(const TcpRank& self) {
  std::string text;
  for (const auto& [peer, reason] : self.sink.failures) text += std::to_string(peer) + ": " + reason + "; ";
  return text;
}

// Every rank is a process that runs `body`; `ends` is what run_processes() should give.
void run_job(int ranks, const TcpOptions& options, const std::function<std::string(TcpRank&)>& body,
             const std::vector<int>& ends) {
  const TemporaryDirectory directory;
  EXPECT_EQ(run_processes(ranks, 30,
                          [&](int rank) {
                            const auto rendezvous =
                                directory_rendezvous({.path = directory.path(), .rank = rank, .size = ranks});
                            TcpRank self(*rendezvous, options);
                            return body(self);
                          }),
            ends);
}

TEST(TcpFailures, AKilledPeerIsNamedAtOnce) {
  run_job(3, {},
          [](TcpRank& self) -> std::string {
            if (!self.meet_all()) return "did not meet";
            if (self.transport.rank() == 2) raise(SIGKILL);
            if (!self.await_failure(5)) return "nobody said that rank 2 is gone";
            if (self.sink.failures.front().first != 2) return describe_failures(self);
            self.progress_until([] { return false; }, 0.2);
            if (self.sink.failures.size() != 1) return "told more than once: " + describe_failures(self);
            return "";
          },
          {0, 0, -SIGKILL});
}

// Wherever it dies: in the middle of a frame, while its memory is read, while it reads.
TEST(TcpFailures, APeerThatIsKilledInFullFlightIsNamedAndNothingElseHappens) {
  for (const HostReads reads : {HostReads::never, HostReads::where_allowed}) {
    for (int round = 0; round < 5; ++round) {
      run_job(3, {.host_reads = reads},
              [&](TcpRank& self) -> std::string {
                const int me = self.transport.rank();
                if (!self.meet_all() && self.sink.failures.empty()) return "did not meet";
                if (me == 2) ualarm(static_cast<useconds_t>(2000 + 7000 * round), 0);
                if (me == 2) signal(SIGALRM, [](int) { raise(SIGKILL); });
                for (int i = 0; self.sink.failures.empty(); ++i) {
                  for (int peer = 0; peer < 3; ++peer) {
                    if (peer != me) self.transport.send(peer, message_of_lengths({100, 500'000, 40'000}, 3));
                  }
                  if (!self.await_messages(2 * static_cast<std::size_t>(i + 1), 10)) break;
                }
                if (self.sink.failures.empty()) return "nothing happened";
                self.progress_until([] { return false; }, 0.5);  // the other survivor is not told by our leaving
                return self.sink.failures.front().first == 2 ? "" : describe_failures(self);
              },
              {0, 0, -SIGKILL});
    }
  }
}

// A rank may compute for longer than silence_seconds while others send to it: its kernel answers for it.
// TCP_USER_TIMEOUT would end the connection.
TEST(TcpFailures, APeerThatReadsNothingForLongIsNotLost) {
  run_tcp(2, {.host_reads = HostReads::never, .silence_seconds = 1}, [](TcpRank& self) {
    ASSERT_TRUE(self.meet_all());
    if (self.transport.rank() == 0) {
      self.transport.send(1, message_of_lengths({50'000'000}, 1));
    } else {
      std::this_thread::sleep_for(std::chrono::seconds(5));
      EXPECT_TRUE(self.await_messages(1));
    }
    EXPECT_TRUE(self.meet_all());
    EXPECT_TRUE(self.sink.failures.empty()) << describe_failures(self);
  });
}

TEST(TcpFailures, MessagesToAPeerThatHasLeftAreAFailure) {
  std::atomic<bool> has_left = false;
  Lobby lobby(2);
  run_ranks(2, [&](int rank) {
    LobbyRendezvous rendezvous(lobby, rank);
    auto self = std::make_unique<TcpRank>(rendezvous);
    if (rank == 0) {
      self.reset();
      has_left = true;
      return;
    }
    ASSERT_TRUE(self->progress_until([&] { return has_left && !self->transport.is_connected(0); }));
    EXPECT_TRUE(self->sink.failures.empty());
    EXPECT_EQ(self->sink.leavers, std::vector<int>{0});
    self->transport.send(0, message_of_lengths({10}, 1));
    ASSERT_TRUE(self->await_failure());
    EXPECT_EQ(self->sink.failures[0], (std::pair<int, std::string>(0, "it has left the job")));
  });
}

TEST(TcpFailures, TheEndDoesNotWaitLongForAPeerThatDoesNotRead) {
  std::atomic<bool> is_over = false;
  Lobby lobby(2);
  run_ranks(2, [&](int rank) {
    LobbyRendezvous rendezvous(lobby, rank);
    auto self =
        std::make_unique<TcpRank>(rendezvous, TcpOptions{.host_reads = HostReads::never, .farewell_seconds = 0.3});
    if (rank == 1) {
      while (!is_over) std::this_thread::yield();
      return;
    }
    self->transport.send(1, message_of_lengths({100'000'000}, 1));
    const double begin = steady_seconds();
    self.reset();
    EXPECT_LT(steady_seconds() - begin, 5);
    EXPECT_GT(steady_seconds() - begin, 0.25);
    is_over = true;
  });
}

// What a peer may be reading is never freed, not even at the end.
TEST(TcpFailures, MemoryThatNobodyHasReadYetIsKept) {
  std::atomic<bool> has_ended = false;
  Lobby lobby(2);
  run_ranks(2, [&](int rank) {
    LobbyRendezvous rendezvous(lobby, rank);
    auto self = std::make_unique<TcpRank>(rendezvous, TcpOptions{.farewell_seconds = 0.05});
    if (!self->transport.is_pulled_by(1 - rank)) return;
    if (rank == 0) {
      Buffer block = bytes_with(200'000, 5);
      Segments segments = {block};
      self->transport.send(1, message_of(std::move(segments)));
      self.reset();
      EXPECT_FALSE(block.is_unique());
      has_ended = true;
    } else {
      while (!has_ended) std::this_thread::yield();
      EXPECT_TRUE(self->progress_until([&] { return !self->transport.is_connected(0); }));
    }
  });
}

// ---------------------------------------------------------------- connecting

TEST(TcpFailures, RanksOfDifferentVersionsAreToldWhichOne) {
  for (const std::size_t byte : {std::string("TULLE card ").size(), std::string("TULLE card ....").size()}) {
    Lobby lobby(3);
    lobby.tamper = [&](std::vector<std::string>& cards) { cards[1][byte] = 9; };
    const std::string error = error_of([&] {
      run_ranks(3, [&](int rank) {
        LobbyRendezvous rendezvous(lobby, rank);
        const TcpRank self(rendezvous);
      });
    });
    EXPECT_TRUE(contains(error, "rank 1 speaks")) << error;
    EXPECT_TRUE(contains(error, "version")) << error;
  }
}

TEST(TcpFailures, RanksWithDifferentOptionsAreToldWhichOne) {
  Lobby lobby(2);
  const std::string error = error_of([&] {
    run_ranks(2, [&](int rank) {
      LobbyRendezvous rendezvous(lobby, rank);
      const TcpRank self(rendezvous, {.pull_bytes = 70'000 + static_cast<std::uint64_t>(rank)});
    });
  });
  EXPECT_TRUE(contains(error, "rank 1 has TcpOptions::pull_bytes = 70001, this rank 70000")) << error;
}

TEST(TcpFailures, SomethingElseInTheRendezvousIsTold) {
  for (const std::string& bytes : {std::string(), std::string("nonsense"), std::string("TULLE card \2\0\0\0", 15)}) {
    Lobby lobby(2);
    lobby.tamper = [&](std::vector<std::string>& cards) { cards[1] = bytes; };
    const std::string error = error_of([&] {
      run_ranks(2, [&](int rank) {
        LobbyRendezvous rendezvous(lobby, rank);
        const TcpRank self(rendezvous);
      });
    });
    EXPECT_TRUE(contains(error, "rank 1 came to the rendezvous with something else")) << error;
  }
}

TEST(TcpFailures, ARankThatDoesNotConnectIsNamed) {
  Lobby lobby(3);
  run_ranks(3, [&](int rank) {
    LobbyRendezvous rendezvous(lobby, rank);
    if (rank == 2) {
      rendezvous.allgather(encode_card(
          {.detach_bytes = TcpOptions().detach_bytes, .pull_bytes = TcpOptions().pull_bytes, .host = "elsewhere"}));
      return;
    }
    const std::string error = error_of([&] { const TcpRank self(rendezvous, {.deadline_seconds = 0.5}); });
    // The one whose time is over first leaves, which the other is told with the reason.
    EXPECT_TRUE(contains(error, "rank 2 did not connect within 0.5 s") || contains(error, "not connected yet: rank 2"))
        << error;
  });
}

TEST(TcpFailures, ARankThatCannotBeReachedIsNamedWithTheReason) {
  Lobby lobby(2);
  run_ranks(2, [&](int rank) {
    LobbyRendezvous rendezvous(lobby, rank);
    if (rank == 0) {
      rendezvous.allgather(encode_card({.detach_bytes = TcpOptions().detach_bytes,
                                        .pull_bytes = TcpOptions().pull_bytes,
                                        .host = "elsewhere",
                                        .addresses = {*SocketAddress::from_numbers("127.0.0.1", 1)}}));
      return;
    }
    const std::string error = error_of([&] { const TcpRank self(rendezvous, {.deadline_seconds = 10}); });
    EXPECT_TRUE(contains(error, "rank 0 failed while connecting")) << error;
    EXPECT_TRUE(contains(error, "127.0.0.1:1: connect: Connection refused")) << error;
  });
}

TEST(TcpFailures, OptionsThatMakeNoSenseAreRefused) {
  Lobby lobby(1);
  LobbyRendezvous rendezvous(lobby, 0);
  const auto error = [&](const TcpOptions& options) {
    return error_of([&] { const TcpRank self(rendezvous, options); });
  };
  EXPECT_TRUE(contains(error({.detach_bytes = 0}), "detach_bytes"));
  EXPECT_TRUE(contains(error({.detach_bytes = 9, .pull_bytes = 8}), "pull_bytes"));
  Lobby two(2);
  LobbyRendezvous of_two(two, 0);
  const auto error_of_two = [&](const TcpOptions& options) {
    return error_of([&] { const TcpRank self(of_two, options); });
  };
  EXPECT_TRUE(contains(error_of_two({.interface = "nonsense0"}), "no interface 'nonsense0'"));
  EXPECT_TRUE(contains(error_of_two({.ports = "5-"}), "'5-' is not a port"));
  EXPECT_TRUE(contains(error_of_two({.ports = "50-40"}), "ends before it begins"));
  EXPECT_TRUE(contains(error_of_two({.ports = "70000"}), "is not a port"));
}

}  // namespace
}  // namespace tulle::testing
