// Ranks find each other, or are told who is missing.
#include <fstream>

#include "comm/tcp/timed_io.hpp"
#include "comm_tcp/processes.hpp"
#include "comm_tcp/tcp_fixture.hpp"

namespace tulle::testing {
namespace {

using Factory = std::function<std::unique_ptr<Rendezvous>(int rank, int size)>;

std::string bytes_of_rank(int rank, int round) {
  std::string bytes = "rank " + std::to_string(rank) + " in round " + std::to_string(round);
  bytes.push_back('\0');
  return bytes + std::string(static_cast<std::size_t>(rank) * 5000, static_cast<char>(round));
}

void expect_gathers(const Factory& make, int size, int rounds) {
  run_ranks(size, [&](int rank) {
    const auto rendezvous = make(rank, size);
    EXPECT_EQ(rendezvous->rank(), rank);
    EXPECT_EQ(rendezvous->size(), size);
    for (int round = 0; round < rounds; ++round) {
      const auto all = rendezvous->allgather(bytes_of_rank(rank, round));
      ASSERT_EQ(all.size(), static_cast<std::size_t>(size));
      for (int peer = 0; peer < size; ++peer) {
        ASSERT_EQ(all[static_cast<std::size_t>(peer)], bytes_of_rank(peer, round));
      }
    }
  });
}

// The errors of the ranks that come.
std::vector<std::string> errors_without(const Factory& make, int size, const std::vector<int>& absent) {
  std::vector<std::string> errors(static_cast<std::size_t>(size));
  run_ranks(size, [&](int rank) {
    if (std::ranges::count(absent, rank) != 0) return;
    errors[static_cast<std::size_t>(rank)] = error_of([&] { make(rank, size)->allgather("here"); });
  });
  return errors;
}

// A port that nobody has, below those that the system hands out by itself: so it stays free until it is used.
std::uint16_t free_port() {
  static unsigned tries = 31u * static_cast<unsigned>(getpid());
  for (int i = 0; i < 100; ++i) {
    const auto port = static_cast<std::uint16_t>(20'000 + tries++ % 12'000);
    const auto listen = [&] { listen_at(*SocketAddress::from_numbers("127.0.0.1", 0), {port, port}); };
    if (error_of(listen) == "no error") return port;
  }
  throw Error(ErrorKind::system, "no port is free");
}

Factory at_port(std::uint16_t port, double deadline_seconds = 20) {
  return [=](int rank, int size) {
    return address_rendezvous(
        {.host = "127.0.0.1", .port = port, .rank = rank, .size = size, .deadline_seconds = deadline_seconds});
  };
}

TEST(DirectoryRendezvous, GathersSeveralTimes) {
  for (const int size : {1, 2, 5}) {
    const TemporaryDirectory directory;
    expect_gathers(
        [&](int rank, int ranks) {
          return directory_rendezvous({.path = directory.path(), .rank = rank, .size = ranks});
        },
        size, 3);
  }
}

TEST(DirectoryRendezvous, DoesNotTakeWhatAnEarlierJobLeft) {
  const TemporaryDirectory directory;
  for (int job = 0; job < 5; ++job) {
    run_ranks(3, [&](int rank) {
      std::this_thread::sleep_for(std::chrono::milliseconds(30 * ((rank + job) % 3)));  // one finds old files alone
      const auto rendezvous = directory_rendezvous({.path = directory.path(), .rank = rank, .size = 3});
      const std::string mine = "job " + std::to_string(job);
      EXPECT_EQ(rendezvous->allgather(mine), std::vector<std::string>(3, mine));
    });
  }
}

TEST(DirectoryRendezvous, NamesWhoIsMissing) {
  const TemporaryDirectory directory;
  const auto make = [&](int rank, int size) {
    return directory_rendezvous({.path = directory.path(), .rank = rank, .size = size, .deadline_seconds = 0.3});
  };
  const auto errors = errors_without(make, 4, {1, 3});
  for (const int rank : {0, 2}) {
    EXPECT_TRUE(contains(errors[static_cast<std::size_t>(rank)], "ranks 1, 3 did not come to the directory"))
        << errors[static_cast<std::size_t>(rank)];
  }
  // Files of an earlier job do not stand in for a rank.
  expect_gathers([&](int rank, int size) { return make(rank, size); }, 2, 1);
  EXPECT_TRUE(contains(errors_without(make, 2, {1})[0], "rank 1 did not come"));
}

TEST(DirectoryRendezvous, SaysThatTheDirectoryIsNotThere) {
  const auto rendezvous = directory_rendezvous({.path = "/nonexistent/place", .rank = 0, .size = 2});
  EXPECT_TRUE(contains(error_of([&] { rendezvous->allgather(""); }), "/nonexistent/place"));
  EXPECT_TRUE(contains(error_of([&] { directory_rendezvous({.path = "/tmp", .rank = 2, .size = 2}); }), "no rank 2"));
}

TEST(AddressRendezvous, GathersSeveralTimes) {
  for (const int size : {1, 2, 5}) expect_gathers(at_port(free_port()), size, 4);
}

TEST(AddressRendezvous, WaitsForRankZero) {
  const Factory make = at_port(free_port());
  run_ranks(3, [&](int rank) {
    if (rank == 0) std::this_thread::sleep_for(std::chrono::milliseconds(200));
    EXPECT_EQ(make(rank, 3)->allgather("x").size(), 3u);
  });
}

TEST(AddressRendezvous, TellsAllWhoCameWhoIsMissing) {
  const auto errors = errors_without(at_port(free_port(), 0.4), 5, {2, 4});
  for (const std::size_t rank : {0, 1, 3}) {
    EXPECT_TRUE(contains(errors[rank], "ranks 2, 4 did not come to 127.0.0.1")) << rank << ": " << errors[rank];
  }
}

TEST(AddressRendezvous, SaysThatRankZeroDoesNotAnswer) {
  const auto errors = errors_without(at_port(free_port(), 0.3), 2, {0});
  EXPECT_TRUE(contains(errors[1], "rank 0 did not answer at 127.0.0.1")) << errors[1];
  EXPECT_TRUE(contains(errors[1], "Connection refused")) << errors[1];
}

TEST(AddressRendezvous, ToleratesStrangers) {
  const std::uint16_t port = free_port();
  std::vector<Fd> strangers;
  run_ranks(2, [&](int rank) {
    const auto rendezvous = at_port(port)(rank, 2);
    if (rank == 1) {
      const auto address = *SocketAddress::from_numbers("127.0.0.1", port);
      while (strangers.size() < 3) {
        Fd fd = begin_connect(address);
        wait_for(fd.get(), 4 /* POLLOUT */, Deadline(5));
        if (pending_error(fd.get()) == 0) strangers.push_back(std::move(fd));
      }
      send_whole(strangers[0].get(), "GET / HTTP/1.1\r\n\r\n", Deadline(5));
      send_whole(strangers[1].get(), std::string("TULLERDV") + std::string(1000, '\xff'), Deadline(5));
    }
    EXPECT_EQ(rendezvous->allgather("x"), std::vector<std::string>(2, "x"));
  });
}

TEST(AddressRendezvous, TellsWhoDisagreesWithRankZero) {
  const std::uint16_t port = free_port();
  run_ranks(3, [&](int rank) {
    if (rank == 2) {
      const std::string error = error_of([&] { at_port(port)(2, 4)->allgather("x"); });
      EXPECT_TRUE(contains(error, "rank 2 says that the job has 4 ranks, rank 0 says 2")) << error;
      return;
    }
    if (rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(300));
    EXPECT_EQ(at_port(port)(rank, 2)->allgather("x").size(), 2u);
  });
}

// ---------------------------------------------------------------- the environment

class EnvironmentRendezvous : public ::testing::Test {
 protected:
  static constexpr const char* kVariables[] = {"TULLE_ADDRESS", "TULLE_RANK", "TULLE_SIZE", "MASTER_ADDR",
                                               "MASTER_PORT",   "RANK",       "WORLD_SIZE"};
  void SetUp() override { TearDown(); }
  void TearDown() override {
    for (const char* const variable : kVariables) unsetenv(variable);
  }
  static void set(const std::string& variable, const std::string& value) { setenv(variable.c_str(), value.c_str(), 1); }
  static std::string error() {
    return error_of([] { environment_rendezvous(); });
  }
};

TEST_F(EnvironmentRendezvous, NamesTheVariableThatIsMissingOrWrong) {
  EXPECT_FALSE(has_rendezvous_environment());
  EXPECT_TRUE(contains(error(), "TULLE_SIZE is not set, and WORLD_SIZE is not either")) << error();
  set("TULLE_SIZE", "3");
  EXPECT_TRUE(contains(error(), "TULLE_RANK is not set")) << error();
  set("TULLE_RANK", "3");
  EXPECT_TRUE(contains(error(), "TULLE_RANK is '3', which should be a number from 0 to 2")) << error();
  set("TULLE_RANK", "1");
  EXPECT_TRUE(has_rendezvous_environment());
  EXPECT_TRUE(contains(error(), "TULLE_ADDRESS is not set")) << error();
  for (const char* const address : {"here", ":5", "here:", "here:x", "here:70000"}) {
    set("TULLE_ADDRESS", address);
    EXPECT_TRUE(contains(error(), "TULLE_ADDRESS is '")) << error();
  }
  set("TULLE_SIZE", "three");
  EXPECT_TRUE(contains(error(), "TULLE_SIZE is 'three'")) << error();
}

TEST_F(EnvironmentRendezvous, OfOneRankNeedsNoAddress) {
  set("TULLE_SIZE", "1");
  set("TULLE_RANK", "0");
  EXPECT_EQ(environment_rendezvous()->allgather("me"), std::vector<std::string>{"me"});
}

TEST_F(EnvironmentRendezvous, TakesTullesVariablesFirst) {
  set("RANK", "5");
  set("WORLD_SIZE", "9");
  set("MASTER_ADDR", "elsewhere");
  set("MASTER_PORT", "1");
  set("TULLE_RANK", "1");
  set("TULLE_SIZE", "2");
  set("TULLE_ADDRESS", "[::1]:5000");
  const auto rendezvous = environment_rendezvous();
  EXPECT_EQ(rendezvous->rank(), 1);
  EXPECT_EQ(rendezvous->size(), 2);
  EXPECT_EQ(rendezvous->meeting_host(), "::1");
}

TEST_F(EnvironmentRendezvous, OfTorchrunKeepsAwayFromTorchsOwnPort) {
  for (const int master_port : {29500, 65000}) {
    set("RANK", "1");
    set("WORLD_SIZE", "2");
    set("MASTER_ADDR", "127.0.0.1");
    set("MASTER_PORT", std::to_string(master_port));
    const auto rendezvous = environment_rendezvous(0.1);
    const std::string text = error_of([&] { rendezvous->allgather("x"); });
    EXPECT_TRUE(contains(text, master_port == 29500 ? "127.0.0.1:30500 " : "127.0.0.1:64000 ")) << text;
  }
}

}  // namespace
}  // namespace tulle::testing
