// Ranks find each other, or are told who is missing.
#include <atomic>
#include <filesystem>
#include <fstream>

#include "comm/tcp/entrance.hpp"
#include "comm/tcp/interfaces.hpp"
#include "comm/tcp/packed_strings.hpp"
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

// ---------------------------------------------------------------- two jobs, and ranks that start again

Factory of_job(std::uint16_t port, const std::string& job, double deadline_seconds = 20) {
  return [=](int rank, int size) {
    return address_rendezvous({.host = "127.0.0.1",
                               .port = port,
                               .rank = rank,
                               .size = size,
                               .deadline_seconds = deadline_seconds,
                               .job = job});
  };
}

TEST(AddressRendezvous, KeepsTwoJobsAtOneAddressApart) {
  const std::uint16_t port = free_port();
  std::atomic<int> told = 0;
  run_ranks(4, [&](int number) {
    const bool is_first_job = number < 2;
    if (number == 1) {  // when the other job has been here
      while (told == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    if (number == 3) {
      const std::string error = error_of([&] { of_job(port, "TULLE_JOB=b")(1, 2)->allgather("b"); });
      EXPECT_TRUE(contains(error, "rank 1 of the job TULLE_JOB=b")) << error;
      EXPECT_TRUE(contains(error, "rank 0 of the job TULLE_JOB=a waits")) << error;
      EXPECT_TRUE(contains(error, "set TULLE_JOB")) << error;
      told = 1;
    } else if (is_first_job) {
      EXPECT_EQ(of_job(port, "TULLE_JOB=a")(number, 2)->allgather("a"), std::vector<std::string>(2, "a"));
    }
  });
}

TEST(AddressRendezvous, SaysTooFewLettersOfALongNameToGuessTheRest) {
  const std::uint16_t port = free_port();
  const std::string secret(60, 's');
  run_ranks(2, [&](int rank) {
    const std::string error = error_of([&] { of_job(port, rank == 0 ? secret : "b", 0.5)(rank, 2)->allgather("x"); });
    EXPECT_FALSE(contains(error, secret)) << error;
    EXPECT_TRUE(contains(error, "rank 1 of the job b came to where rank 0 of the job ssssssss")) << error;
  });
}

TEST(AddressRendezvous, TakesARankThatStartsAgainForItsDeadOne) {
  const std::uint16_t port = free_port();
  run_ranks(3, [&](int rank) {
    const auto make = at_port(port);
    if (rank == 1) {  // asks, and dies before the others come
      const auto address = *SocketAddress::from_numbers("127.0.0.1", port);
      std::string request = "TULLERDV";
      for (const std::uint32_t number : {2, 1, 1, 3, 0, 4}) append_u32(request, number);
      Fd fd;
      while (!fd || pending_error(fd.get()) != 0) {
        fd = begin_connect(address);
        ASSERT_TRUE(wait_for(fd.get(), 4 /* POLLOUT */, Deadline(5)));
      }
      ASSERT_TRUE(send_whole(fd.get(), request + "dead", Deadline(5)));
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
    if (rank == 2) std::this_thread::sleep_for(std::chrono::milliseconds(300));
    EXPECT_EQ(make(rank, 3)->allgather("alive"), std::vector<std::string>(3, "alive"));
  });
}

TEST(AddressRendezvous, RefusesASecondProcessWithTheSameNumber) {
  const std::uint16_t port = free_port();
  std::atomic<int> refused = 0;
  run_ranks(4, [&](int number) {
    if (number == 3) {
      while (refused == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    const int rank = number == 3 ? 2 : number == 2 ? 1 : number;  // 0, 1, 1, 2
    const std::string error = error_of([&] { EXPECT_EQ(at_port(port)(rank, 3)->allgather("x").size(), 3u); });
    if (error == "no error") return;
    EXPECT_TRUE(contains(error, "two processes say that they are rank 1")) << error;
    refused += 1;
  });
  EXPECT_EQ(refused, 1);
}

TEST(AddressRendezvous, AsksForAHostAgainUntilTheDeadline) {
  const Deadline early(0.25);
  const auto rendezvous =
      address_rendezvous({.host = "no such host.invalid", .port = 5, .rank = 1, .size = 2, .deadline_seconds = 0.3});
  const std::string error = error_of([&] { rendezvous->allgather("x"); });
  EXPECT_TRUE(early.has_passed());
  EXPECT_TRUE(contains(error, "'no such host.invalid' cannot be resolved")) << error;
  EXPECT_TRUE(contains(error, "deadline")) << error;
}

TEST(AddressRendezvous, ListensAtTheAddressThatItIsGiven) {
  const auto hosts_of = [](const std::string& host) {
    std::vector<std::string> hosts;
    for (const SocketAddress& address : addresses_to_listen_at(host)) hosts.push_back(address.host());
    return hosts;
  };
  EXPECT_EQ(hosts_of("127.0.0.2"), std::vector<std::string>{"127.0.0.2"});
  for (const SocketAddress& address : offer_addresses("", "").addresses) {
    EXPECT_EQ(hosts_of(address.host()), std::vector<std::string>{address.host()});
  }
  const std::vector<std::string> all = {SocketAddress::any().host()};
  EXPECT_EQ(hosts_of(""), all);
  EXPECT_EQ(hosts_of("192.0.2.1"), all);  // no host's
}

// Whoever listens where rank 0 should, and says something of its own.
std::string error_of_rank_1_told(const std::string& words) {
  const Fd listener = listen_at(*SocketAddress::from_numbers("127.0.0.1", 0), {});
  const std::uint16_t port = address_of_this_end(listener.get()).port();
  std::string error;
  std::atomic<bool> is_over = false;
  run_ranks(2, [&](int rank) {
    if (rank == 1) {
      error = error_of([&] { of_job(port, "TULLE_JOB=a", 0.3)(1, 2)->allgather("x"); });
      is_over = true;
    }
    while (!is_over) {
      const Fd fd = accept_from(listener.get());
      if (!fd) continue;
      receive_whole(fd.get(), 32 + 11 + 1, Deadline(5));
      send_whole(fd.get(), words, Deadline(5));
    }
  });
  return error;
}

std::string answer_of(std::uint32_t status, const std::string& job, std::uint32_t bytes, const std::string& content) {
  std::string text = "TULLERDA";
  for (const std::uint32_t number : {std::uint32_t{2}, status, static_cast<std::uint32_t>(job.size()), bytes}) {
    append_u32(text, number);
  }
  return text + job + content;
}

TEST(AddressRendezvous, BelievesAFalseRankZeroNothing) {
  // 4 GiB, of which some arrive.
  std::string error = error_of_rank_1_told(answer_of(0, "", 0xffffffff, std::string(1 << 20, 'x')));
  EXPECT_TRUE(contains(error, "which no answer for 2 ranks has")) << error;
  error = error_of_rank_1_told("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi");
  EXPECT_TRUE(contains(error, "no rendezvous of Tulle's")) << error;
  error = error_of_rank_1_told(answer_of(0, "TULLE_JOB=b", 10, pack_strings({"x", "y"})));
  EXPECT_TRUE(contains(error, "the job TULLE_JOB=a, and at 127.0.0.1")) << error;
  EXPECT_TRUE(contains(error, "rank 0 of the job TULLE_JOB=b answered")) << error;
}

TEST(AddressRendezvous, SaysThatAFalseRankZeroSaysNothing) {
  const Fd listener = listen_at(*SocketAddress::from_numbers("127.0.0.1", 0), {});
  const std::uint16_t port = address_of_this_end(listener.get()).port();
  const std::string error = error_of([&] { at_port(port, 0.1)(1, 2)->allgather("x"); });
  EXPECT_TRUE(contains(error, "rank 0 did not answer")) << error;
  EXPECT_TRUE(contains(error, "who listens there says nothing")) << error;
}

TEST(DirectoryRendezvous, KeepsTwoJobsInOneDirectoryApart) {
  const TemporaryDirectory directory;
  run_ranks(4, [&](int number) {
    const std::string job = number < 2 ? "a" : "b";
    const auto rendezvous = directory_rendezvous({.path = directory.path(), .rank = number % 2, .size = 2, .job = job});
    EXPECT_EQ(rendezvous->allgather(job), std::vector<std::string>(2, job));
  });
}

TEST(DirectoryRendezvous, SaysThatTwoProcessesAreTheSameRank) {
  const TemporaryDirectory directory;
  std::atomic<int> errors = 0;
  run_ranks(3, [&](int number) {  // 0, 1, 1, where rank 0 comes last
    if (number == 0) std::this_thread::sleep_for(std::chrono::milliseconds(300));
    if (number == 2) std::this_thread::sleep_for(std::chrono::milliseconds(100));
    const auto rendezvous =
        directory_rendezvous({.path = directory.path(), .rank = std::min(number, 1), .size = 2, .job = "twice"});
    const std::string error = error_of([&] { rendezvous->allgather("x"); });
    if (error == "no error") return;
    EXPECT_TRUE(contains(error, "two processes say that they are rank 1 of the job twice")) << error;
    errors += 1;
  });
  EXPECT_EQ(errors, 1);
}

TEST(DirectoryRendezvous, ShowsTokensToNobodyElse) {
  const TemporaryDirectory directory;
  directory_rendezvous({.path = directory.path(), .rank = 0, .size = 1})->allgather("secret");
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(directory.path())) {
    EXPECT_EQ(entry.status().permissions(), std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
    files += 1;
  }
  EXPECT_EQ(files, 2);
}

// ---------------------------------------------------------------- strangers

// Connections to a port, as many as asked for, each with some words.
std::vector<Fd> strangers_at(std::uint16_t port, int count, const std::string& words) {
  const auto address = *SocketAddress::from_numbers("127.0.0.1", port);
  std::vector<Fd> strangers;
  while (strangers.size() < static_cast<std::size_t>(count)) {
    Fd fd = begin_connect(address);
    EXPECT_TRUE(wait_for(fd.get(), 4 /* POLLOUT */, Deadline(5)));
    if (pending_error(fd.get()) != 0) continue;
    send_whole(fd.get(), words, Deadline(5));
    strangers.push_back(std::move(fd));
  }
  return strangers;
}

TEST(AddressRendezvous, IsNotHeldUpByManyStrangers) {
  for (const std::string words : {"", "TULLERDV", "GET / HTTP/1.1\r\n\r\n"}) {
    const std::uint16_t port = free_port();
    std::vector<Fd> strangers;
    run_ranks(2, [&](int rank) {
      if (rank == 1) strangers = strangers_at(port, static_cast<int>(most_strangers()) + 80, words);
      EXPECT_EQ(at_port(port)(rank, 2)->allgather("x"), std::vector<std::string>(2, "x"));
    });
  }
}

TEST(AddressRendezvous, CountsStrangersWhereARankIsMissing) {
  const std::uint16_t port = free_port();
  const auto strangers = std::make_unique<std::vector<Fd>>();
  run_ranks(2, [&](int rank) {
    if (rank == 1) {
      *strangers = strangers_at(port, 3, "GET / HTTP/1.1\r\n\r\n");
      return;
    }
    const std::string error = error_of([&] { at_port(port, 0.5)(0, 2)->allgather("x"); });
    EXPECT_TRUE(contains(error, "rank 1 did not come")) << error;
    EXPECT_TRUE(contains(error, "; 3 connections were refused, the last one of 127.0.0.1:")) << error;
    EXPECT_TRUE(contains(error, "because it does not speak Tulle's rendezvous")) << error;
  });
}

// ---------------------------------------------------------------- the environment

class EnvironmentRendezvous : public ::testing::Test {
 protected:
  static constexpr const char* kVariables[] = {"TULLE_ADDRESS", "TULLE_RANK",    "TULLE_SIZE", "MASTER_ADDR",
                                               "MASTER_PORT",   "RANK",          "WORLD_SIZE", "TULLE_JOB",
                                               "SLURM_JOB_ID",  "SLURM_STEP_ID", "PBS_JOBID",  "TORCHELASTIC_RUN_ID"};
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

TEST_F(EnvironmentRendezvous, NamesTheJobByWhateverStartedIt) {
  EXPECT_EQ(job_from_environment(), "");
  set("PBS_JOBID", "7.host");
  EXPECT_EQ(job_from_environment(), "PBS_JOBID=7.host");
  set("SLURM_JOB_ID", "12");
  EXPECT_EQ(job_from_environment(), "SLURM_JOB_ID=12");
  set("SLURM_STEP_ID", "0");
  EXPECT_EQ(job_from_environment(), "SLURM_JOB_ID=12 SLURM_STEP_ID=0");
  set("TORCHELASTIC_RUN_ID", "t");
  EXPECT_EQ(job_from_environment(), "TORCHELASTIC_RUN_ID=t");
  set("TULLE_JOB", "mine");
  EXPECT_EQ(job_from_environment(), "TULLE_JOB=mine");
  set("TULLE_JOB", std::string(1000, 'x'));
  set("TULLE_SIZE", "1");
  set("TULLE_RANK", "0");
  EXPECT_TRUE(contains(error(), "TULLE_JOB")) << error();
}

TEST_F(EnvironmentRendezvous, KeepsRanksOfTwoJobsApart) {
  set("TULLE_JOB", "first");
  const std::uint16_t port = free_port();
  const auto first = at_port(port, 0.5)(0, 2);
  set("TULLE_JOB", "second");
  const auto second = at_port(port)(1, 2);
  run_ranks(2, [&](int rank) {
    const std::string error = error_of([&] { (rank == 0 ? first : second)->allgather("x"); });
    EXPECT_TRUE(contains(error, "rank 1 of the job TULLE_JOB=second")) << error;
    EXPECT_TRUE(contains(error, "rank 0 of the job TULLE_JOB=first")) << error;
  });
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
