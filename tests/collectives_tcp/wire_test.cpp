// Jobs whose wires flip bits, end, stall or trickle: each rank has an error that names the link, or the right sum.
#include "comm_tcp/tcp_fixture.hpp"
#include "comm_tcp/wire_proxy.hpp"
#include "tulle/collectives/collectives.hpp"
#include "tulle/comm/tcp.hpp"

namespace tulle::testing {
namespace {

constexpr int kRanks = 3;
constexpr int kSums = 24;
constexpr std::size_t kDense = 30'000;

struct Job {
  std::vector<std::string> errors = std::vector<std::string>(kRanks, "no error");
  std::atomic<int> wrong_sums = 0;
  int faults = 0;  ///< that have happened
};

AnyStream dense_of(std::size_t values, std::int64_t value) {
  return Stream<std::int64_t>::dense(std::vector<std::int64_t>(values, value));
}

// One small sum, one large one; rank r gives r + 1 everywhere.
int wrong_sums(Communicator& communicator, int round) {
  int wrong = 0;
  for (const std::size_t values : {std::size_t{10}, kDense}) {
    AnyStream stream = dense_of(values, communicator.rank() + 1 + round);
    allreduce(communicator, stream, {.algorithm = values == kDense ? "dense_ring" : "dense_recursive_double"});
    wrong += stream == dense_of(values, kRanks * (kRanks + 1) / 2 + kRanks * round) ? 0 : 1;
  }
  return wrong;
}

void run_through_proxy(const std::vector<WireFault>& faults, Job& job, const TcpOptions& options = {},
                       double deadline_seconds = 20) {
  WireProxy proxy(kRanks, faults);
  Lobby lobby(kRanks);
  run_ranks(kRanks, [&](int rank) {
    LobbyRendezvous inner(lobby, rank);
    ProxiedRendezvous rendezvous(inner, proxy);
    job.errors[static_cast<std::size_t>(rank)] = error_of([&] {
      Communicator communicator = connect(rendezvous, options);
      communicator.set_default_deadline(deadline_seconds);
      for (int round = 0; round < kSums; ++round) job.wrong_sums += wrong_sums(communicator, round);
    });
  });
  job.faults = proxy.happened();
}

TEST(TcpWire, WithoutAFaultSumsAreRight) {
  Job job;
  run_through_proxy({}, job);
  EXPECT_EQ(job.errors, std::vector<std::string>(kRanks, "no error"));
  EXPECT_EQ(job.wrong_sums, 0);
}

// From the first frame's prefix on: prefixes, heads, tables of lengths, values, trailers.
TEST(TcpWire, AFlippedBitIsAnErrorOnAllRanksThatNamesTheLink) {
  std::vector<std::uint64_t> places;
  for (std::uint64_t at = kHelloBytes; at < kHelloBytes + 210; at += 7) places.push_back(at);
  for (const std::uint64_t at : {5'000, 80'001, 160'003, 240'500, 240'777, 400'004, 700'006}) places.push_back(at);
  for (std::size_t i = 0; i < places.size(); ++i) {
    const WireFault fault{.from = 1, .to = 2, .at = places[i], .bit = static_cast<int>(i % 8)};
    Job job;
    run_through_proxy({fault}, job);
    EXPECT_EQ(job.wrong_sums, 0) << "byte " << fault.at;
    EXPECT_EQ(job.faults, 1) << "byte " << fault.at;
    for (const std::string& error : job.errors) {
      EXPECT_TRUE(contains(error, "from rank 1: bytes were damaged on the way"))
          << "byte " << fault.at << ": " << error;
    }
    EXPECT_TRUE(contains(job.errors[2], "on the connection from 127.0.0.1:")) << job.errors[2];
  }
}

TEST(TcpWire, AFlippedBitOfAGreetingKeepsTheRanksFromConnecting) {
  for (std::uint64_t at = 0; at < kHelloBytes; at += 5) {
    Job job;
    run_through_proxy({{.from = 1, .to = 2, .at = at, .bit = 5}}, job, {.deadline_seconds = 0.5});
    EXPECT_EQ(job.wrong_sums, 0) << "byte " << at;
    for (const std::string& error : job.errors) EXPECT_NE(error, "no error") << "byte " << at;
  }
}

TEST(TcpWire, WithoutChecksumsAFlippedBitMayChangeASum) {
  Job job;
  run_through_proxy({{.from = 1, .to = 2, .at = 80'001}}, job, {.checksum = false});
  EXPECT_EQ(job.errors, std::vector<std::string>(kRanks, "no error"));
  EXPECT_GT(job.wrong_sums, 0);
}

TEST(TcpWire, OneThatIsCutIsAnErrorOnAllRanks) {
  for (const std::uint64_t at : {kHelloBytes + 11, std::size_t{100'000}}) {
    Job job;
    run_through_proxy({{.kind = WireFault::Kind::cut, .from = 1, .to = 2, .at = at}}, job);
    EXPECT_EQ(job.wrong_sums, 0);
    for (const std::string& error : job.errors) EXPECT_TRUE(contains(error, "is lost")) << error;
  }
}

TEST(TcpWire, OneThatStallsIsAnErrorByTheDeadline) {
  Job job;
  run_through_proxy({{.kind = WireFault::Kind::stall, .from = 1, .to = 2, .at = 100'000}}, job, {}, 1);
  EXPECT_EQ(job.wrong_sums, 0);
  for (const std::string& error : job.errors) EXPECT_NE(error, "no error");
}

TEST(TcpWire, OneThatTricklesGivesTheRightSums) {
  std::vector<WireFault> faults;
  for (const auto& [from, to] : {std::pair(0, 1), std::pair(1, 2), std::pair(2, 1)}) {
    faults.push_back({.kind = WireFault::Kind::trickle, .from = from, .to = to, .at = 50'000});
    faults.push_back({.kind = WireFault::Kind::trickle, .from = to, .to = from, .at = 50'000});
  }
  Job job;
  run_through_proxy(faults, job);
  EXPECT_EQ(job.errors, std::vector<std::string>(kRanks, "no error"));
  EXPECT_EQ(job.wrong_sums, 0);
  EXPECT_GT(job.faults, 0);
}

}  // namespace
}  // namespace tulle::testing
