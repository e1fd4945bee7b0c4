// Heartbeats: step by step, in simulation, on threads, and on a transport that keeps what is sent.
#include "tulle/comm/heartbeat.hpp"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>

#include "comm/beat.hpp"
#include "comm/heartbeats.hpp"
#include "tulle/comm/control.hpp"
#include "tulle/comm/datagram.hpp"
#include "tulle/comm/shrink.hpp"
#include "tulle/comm/sim.hpp"
#include "tulle/comm/threads.hpp"

namespace tulle {
namespace {

constexpr Heartbeat kHeartbeat{.interval_seconds = 0.1, .limit_seconds = 1};

// The kind and the words of an error; nothing where there is none.
std::string describe(const std::exception_ptr& error) {
  try {
    if (error) std::rethrow_exception(error);
  } catch (const Error& thrown) {
    return std::string(to_string(thrown.kind())) + ": " + thrown.what();
  }
  return "";
}

template <class Work>
std::string error_of(Work work) {
  try {
    work();
  } catch (...) {
    return describe(std::current_exception());
  }
  return "";
}

bool contains(std::string_view text, std::string_view part) { return text.find(part) != text.npos; }

// ---------------------------------------------------------------- what is written

TEST(Heartbeat, is_read_from_text) {
  EXPECT_EQ(parse_heartbeat("0.5/4", "X"), (Heartbeat{0.5, 4}));
  EXPECT_EQ(parse_heartbeat("2", "X"), (Heartbeat{2, 20}));
  EXPECT_FALSE(parse_heartbeat("0", "X").is_on());
  for (const std::string text : {"", "x", "1/", "/1", "1/2/3", "1s", "-1", "1/1.5", "1e-4", "0/1", "nan", "inf"}) {
    const std::string error = error_of([&] { parse_heartbeat(text, "TULLE_HEARTBEAT"); });
    EXPECT_TRUE(contains(error, "bad_input")) << text << ": " << error;
  }
}

TEST(Beat, has_the_documented_bytes) {
  const Message message = encode_beat(beat_of({.interval_seconds = 0.5, .limit_seconds = 10}));
  std::string hex;
  for (const Buffer& buffer : {message.head, message.segments.at(0)}) {
    for (const std::byte byte : buffer.bytes()) {
      constexpr char kDigits[] = "0123456789abcdef";
      hex += {kDigits[static_cast<unsigned>(byte) >> 4], kDigits[static_cast<unsigned>(byte) & 15]};
    }
  }
  EXPECT_EQ(hex,
            "54020400"      // magic, version, kind, flags
            "01000000"      // segments, step
            "000000"        // context: allocator,
            "00000000"      // slot, generation
            "0000"          // epoch
            "000000"        // channel
            "000000000000"  // sequence
            "100000000000"  // payload_bytes
            "0000000000000000"
            "00000000"          // fingerprint, last_call
            "c4ee755b"          // header_checksum
            "1000000000000000"  // the length of the segment
            "20a1070000000000"  // 500,000 microseconds
            "8096980000000000");
  EXPECT_EQ(decode_beat(message.segments), beat_of({.interval_seconds = 0.5, .limit_seconds = 10}));
  EXPECT_THROW(decode_beat({}), Error);
}

// ---------------------------------------------------------------- step by step

// Keeps what is sent, says whom it reaches and what it has heard, and has a clock that stands.
class StandingTransport final : public Transport {
 public:
  struct State {
    std::multimap<int, Message> sent;
    std::set<int> unreached;
    std::map<int, std::uint64_t> bytes;
    double seconds = 0;
    bool allows_progress_thread = true, progresses_alone = true;
  };
  StandingTransport(std::shared_ptr<State> state, int ranks) : state_(std::move(state)), ranks_(ranks) {}

  std::string name() const override { return "standing"; }
  int rank() const override { return 0; }
  int size() const override { return ranks_; }
  void attach(MessageSink&) override {}
  void send(int peer, Message message) override { state_->sent.emplace(peer, std::move(message)); }
  bool poll() override { return false; }
  double now() const override { return state_->seconds; }
  bool progresses_alone() const override { return state_->progresses_alone; }
  bool is_reached(int peer) const override { return !state_->unreached.contains(peer); }
  std::uint64_t bytes_heard(int peer) const override {
    const auto found = state_->bytes.find(peer);
    return found == state_->bytes.end() ? 0 : found->second;
  }
  void require_progress_thread() const override {
    if (!state_->allows_progress_thread) throw Error(ErrorKind::unsupported, "no threads here");
  }

 private:
  std::shared_ptr<State> state_;
  int ranks_;
};

struct Steps {
  std::shared_ptr<StandingTransport::State> state = std::make_shared<StandingTransport::State>();
  StandingTransport transport{state, 4};
  Heartbeats heartbeats{kHeartbeat, 0, 4};

  std::vector<int> due() {
    const auto peers = heartbeats.take_due(state->seconds, transport);
    return {peers.begin(), peers.end()};
  }
  std::vector<int> silent() {
    std::vector<int> peers;
    for (const auto& [peer, seconds] : heartbeats.look(state->seconds, transport)) peers.push_back(peer);
    return peers;
  }
  /// Looks at each of the marks, as an engine does; gives who was silent at one of them.
  std::set<int> pass(double seconds) {
    std::set<int> found;
    for (const double end = state->seconds + seconds; state->seconds < end;) {
      state->seconds += kHeartbeat.interval_seconds / 4;
      const std::vector<int> now = silent();
      found.insert(now.begin(), now.end());
    }
    return found;
  }
};

TEST(Heartbeats, are_due_at_first_and_then_to_peers_that_were_sent_nothing_for_an_interval) {
  Steps steps;
  EXPECT_EQ(steps.due(), (std::vector<int>{1, 2, 3}));
  EXPECT_EQ(steps.due(), std::vector<int>{});
  steps.pass(0.06);
  steps.heartbeats.note_sent(2);
  steps.pass(0.06);
  EXPECT_EQ(steps.due(), (std::vector<int>{1, 3}));
  steps.heartbeats.forget(3);
  steps.pass(0.11);
  EXPECT_EQ(steps.due(), (std::vector<int>{1, 2}));
}

TEST(Heartbeats, make_no_connection) {
  Steps steps;
  steps.state->unreached = {2};
  EXPECT_EQ(steps.due(), (std::vector<int>{1, 3}));
  steps.state->unreached = {};
  EXPECT_EQ(steps.due(), std::vector<int>{2});
}

TEST(Heartbeats, judge_who_has_sent_a_beat_by_messages_and_by_bytes) {
  Steps steps;
  steps.silent();
  for (const int peer : {1, 2}) {
    steps.heartbeats.note_heard(peer);
    steps.heartbeats.judge(peer);
  }
  EXPECT_EQ(steps.pass(0.9), std::set<int>{});
  steps.state->bytes[2] = 100;
  EXPECT_EQ(steps.pass(0.2), std::set<int>{1});
  steps.heartbeats.forget(1);
  EXPECT_EQ(steps.pass(0.7), std::set<int>{});
  steps.heartbeats.note_heard(2);
  EXPECT_EQ(steps.pass(0.9), std::set<int>{});
  EXPECT_EQ(steps.pass(0.2), std::set<int>{2});
}

TEST(Heartbeats, do_not_count_time_in_which_nobody_looked) {
  Steps steps;
  steps.silent();
  steps.heartbeats.note_heard(1);
  steps.heartbeats.judge(1);
  steps.pass(0.5);
  steps.state->seconds += 100;
  EXPECT_EQ(steps.silent(), std::vector<int>{});
  EXPECT_EQ(steps.pass(0.4), std::set<int>{});
  EXPECT_EQ(steps.pass(0.2), std::set<int>{1});
}

TEST(Heartbeats, end_with_a_word_to_those_who_are_reached) {
  const auto state = std::make_shared<StandingTransport::State>();
  {
    Communicator communicator(std::make_unique<StandingTransport>(state, 4));
    communicator.start_heartbeat(kHeartbeat);
    EXPECT_EQ(state->sent.size(), 3u);
    state->sent.clear();
    state->unreached = {2};
  }
  ASSERT_EQ(state->sent.size(), 2u);
  EXPECT_FALSE(state->sent.contains(2));
  for (const auto& [peer, message] : state->sent) EXPECT_TRUE(decode_beat(message.segments).is_last());
}

TEST(Heartbeats, take_a_thread_where_the_transport_does_not_progress_alone) {
  const auto state = std::make_shared<StandingTransport::State>();
  state->progresses_alone = state->allows_progress_thread = false;
  Communicator communicator(std::make_unique<StandingTransport>(state, 2));
  EXPECT_EQ(error_of([&] { communicator.start_heartbeat(kHeartbeat); }), "unsupported: no threads here");
  EXPECT_EQ(error_of([&] { communicator.start_heartbeat({}); }), "");  // off
  EXPECT_TRUE(state->sent.empty());
}

TEST(Heartbeats, are_set_once) {
  const auto state = std::make_shared<StandingTransport::State>();
  Communicator communicator(std::make_unique<StandingTransport>(state, 2));
  communicator.start_heartbeat(kHeartbeat);
  EXPECT_NO_THROW(communicator.start_heartbeat(kHeartbeat));
  EXPECT_EQ(state->sent.size(), 1u);
  EXPECT_TRUE(contains(error_of([&] { communicator.start_heartbeat({1, 2}); }), "is on already"));
}

// ---------------------------------------------------------------- in simulation

Task<> sleep_in(Communicator& communicator, double seconds) {
  DatagramPort port(communicator, 77);
  auto nothing = port.receive_within(seconds);
  co_await nothing;
}

struct Ended {
  std::vector<std::string> errors;
  std::vector<double> seconds;  ///< on each rank's clock at its end, or when it was killed
};

Ended run_with_heartbeats(SimWorld& world, const Program& program, const Heartbeat& heartbeat = kHeartbeat) {
  Ended ended{.errors = {}, .seconds = std::vector<double>(static_cast<std::size_t>(world.size()))};
  for (int rank = 0; rank < world.size(); ++rank) world.communicator(rank).start_heartbeat(heartbeat);
  const auto errors = world.try_run([&](Communicator& communicator) -> Task<> {
    double& end = ended.seconds[static_cast<std::size_t>(communicator.rank())];
    try {
      Task<> task = program(communicator);
      co_await task;
    } catch (const Error&) {
      end = communicator.engine()->transport().now();
      throw;
    }
    end = communicator.engine()->transport().now();
  });
  for (const auto& error : errors) ended.errors.push_back(describe(error));
  for (int rank = 0; rank < world.size(); ++rank) {
    if (world.is_dead(rank)) {
      ended.seconds[static_cast<std::size_t>(rank)] = world.communicator(rank).engine()->transport().now();
    }
  }
  return ended;
}

Task<> sum_for_ever(Communicator& communicator) {
  while (true) {
    auto request = ibarrier(communicator);
    co_await request;
    Task<> pause = sleep_in(communicator, 0.01);
    co_await pause;
  }
}

// A rank that stops says nothing, and nobody is told: the deadline of 300 s is all that there would be.
TEST(HeartbeatSim, finds_a_stopped_rank_within_limit_and_interval) {
  for (int ranks = 2; ranks <= 9; ++ranks) {
    for (std::uint64_t seed = 1; seed <= 4; ++seed) {
      const int victim = static_cast<int>(seed * 5) % ranks;
      const std::string name = std::to_string(victim);
      SimWorld world({.ranks = ranks,
                      .seed = seed,
                      .faults = {.max_delay_seconds = 0.01, .deaths = {{victim, 40 + 7 * seed, std::nullopt}}}});
      const Ended ended = run_with_heartbeats(world, sum_for_ever);
      const double death = ended.seconds[static_cast<std::size_t>(victim)];
      for (int rank = 0; rank < ranks; ++rank) {
        if (rank == victim) continue;
        const std::string& error = ended.errors[static_cast<std::size_t>(rank)];
        EXPECT_TRUE(contains(error, "peer_failed") && contains(error, "rank " + name + " is lost: it has been silent"))
            << ranks << " " << seed << " " << rank << ": " << error;
        const double took = ended.seconds[static_cast<std::size_t>(rank)] - death;
        EXPECT_GE(took, kHeartbeat.limit_seconds - kHeartbeat.interval_seconds) << ranks << " " << seed;
        EXPECT_LE(took, kHeartbeat.limit_seconds + kHeartbeat.interval_seconds) << ranks << " " << seed;
      }
    }
  }
}

// Rank 0 begins to beat when rank 1 does not yet, and is never silent for an interval until it stops: its first beat is
// the only one.
TEST(HeartbeatSim, judges_who_beat_before_this_rank_did) {
  SimWorld world({.ranks = 2, .faults = {.deaths = {{0, 150, std::nullopt}}}});
  world.communicator(0).start_heartbeat(kHeartbeat);
  const auto errors = world.try_run([&](Communicator& communicator) -> Task<> {
    if (communicator.rank() == 1) {
      Task<> pause = sleep_in(communicator, 0.05);
      co_await pause;
      communicator.start_heartbeat(kHeartbeat);
    }
    Task<> summing = sum_for_ever(communicator);
    co_await summing;
  });
  EXPECT_TRUE(contains(describe(errors[1]), "it has been silent")) << describe(errors[1]);
}

// Rank 2 has beaten, has perhaps said that it ends, and has gone, all before the others begin to judge.
TEST(HeartbeatSim, does_not_miss_who_ended_before_this_rank_began) {
  for (const bool says_so : {false, true}) {
    SimWorld world({.ranks = 3, .faults = {.deaths = {{2, 20, std::nullopt}}}});
    world.communicator(2).start_heartbeat(kHeartbeat);
    const auto errors = world.try_run([&](Communicator& communicator) -> Task<> {
      Task<> pause = sleep_in(communicator, communicator.rank() == 2 ? 0.2 : 3);
      co_await pause;
      if (communicator.rank() == 2) {
        for (int peer = 0; peer < 2 && says_so; ++peer) communicator.engine()->transport().send(peer, encode_beat({}));
        Task<> rest = sleep_in(communicator, 10);
        co_await rest;
        co_return;
      }
      communicator.start_heartbeat(kHeartbeat);
      Task<> wait = sleep_in(communicator, 3);
      co_await wait;
      auto group = communicator.start({}, [](Operation&) -> Task<> { co_return; });  // broken, or not
      co_await Engine::Finished(group);
    });
    EXPECT_TRUE(world.is_dead(2));
    EXPECT_EQ(describe(errors[0]) == "", says_so) << describe(errors[0]);
  }
}

TEST(HeartbeatSim, lets_survivors_shrink_and_go_on) {
  for (const int ranks : {3, 5, 8}) {
    SimWorld world({.ranks = ranks, .faults = {.deaths = {{1, 60, std::nullopt}}}});
    const Ended ended = run_with_heartbeats(world, [&](Communicator& communicator) -> Task<> {
      try {
        Task<> summing = sum_for_ever(communicator);
        co_await summing;
      } catch (const Error&) {
      }
      auto shrinking = ishrink(communicator, {.deadline_seconds = 20});
      Communicator survivors = co_await shrinking;
      EXPECT_EQ(survivors.size(), ranks - 1);
      EXPECT_LT(communicator.engine()->transport().now(), 5);  // long before a deadline, and nobody's patience is tried
      Task<> pause = sleep_in(survivors, 5 * kHeartbeat.limit_seconds);  // those who are left go on beating
      co_await pause;
      auto request = ibarrier(survivors);
      co_await request;
    });
    for (int rank = 0; rank < ranks; ++rank) {
      if (rank == 1) continue;
      EXPECT_EQ(ended.errors[static_cast<std::size_t>(rank)], "") << ranks;
    }
  }
}

// It comes to the barrier after 50 limits, and its messages take half a limit.
TEST(HeartbeatSim, does_not_take_a_slow_rank_for_dead) {
  for (int ranks = 2; ranks <= 5; ++ranks) {
    for (std::uint64_t seed = 1; seed <= 3; ++seed) {
      SimWorld world({.ranks = ranks, .seed = seed, .faults = {.max_delay_seconds = 0.5 * kHeartbeat.limit_seconds}});
      const Ended ended = run_with_heartbeats(world, [](Communicator& communicator) -> Task<> {
        Task<> pause = sleep_in(communicator, 50 * kHeartbeat.limit_seconds);
        if (communicator.rank() == 1) co_await pause;
        auto request = ibarrier(communicator);
        co_await request;
      });
      EXPECT_EQ(ended.errors, std::vector<std::string>(static_cast<std::size_t>(ranks))) << ranks << " " << seed;
      EXPECT_GT(world.elapsed_seconds(), 50 * kHeartbeat.limit_seconds);
    }
  }
}

// Beats wait behind it in the port; its bytes are what is heard.
TEST(HeartbeatSim, hears_a_message_that_takes_longer_than_the_limit) {
  SimWorld world({.ranks = 2, .profile = {.beta_seconds_per_byte = 1e-6}});
  const Ended ended = run_with_heartbeats(world, [](Communicator& communicator) -> Task<> {
    auto request = igather_bytes(communicator, Buffer::allocate(5'000'000));
    co_await request;
  });
  EXPECT_EQ(ended.errors, std::vector<std::string>(2));
  EXPECT_GT(world.elapsed_seconds(), 4 * kHeartbeat.limit_seconds);
}

TEST(HeartbeatSim, judges_nobody_whose_heartbeat_is_off) {
  SimWorld world({.ranks = 3});
  world.communicator(0).start_heartbeat(kHeartbeat);
  world.communicator(1).start_heartbeat(kHeartbeat);
  world.run([](Communicator& communicator) -> Task<> {
    Task<> pause = sleep_in(communicator, 20 * kHeartbeat.limit_seconds);
    if (communicator.rank() == 2) co_await pause;
    auto request = ibarrier(communicator);
    co_await request;
  });
}

// The last beat is what an engine sends when it ends.
TEST(HeartbeatSim, does_not_miss_who_has_said_that_it_ends) {
  for (const bool says_so : {false, true}) {
    SimWorld world({.ranks = 3, .faults = {.deaths = {{2, 20, std::nullopt}}}});
    const Ended ended = run_with_heartbeats(world, [&](Communicator& communicator) -> Task<> {
      if (communicator.rank() == 2) {
        Task<> pause = sleep_in(communicator, 0.5);
        co_await pause;
        for (int peer = 0; peer < 2 && says_so; ++peer) communicator.engine()->transport().send(peer, encode_beat({}));
      }
      Task<> pause = sleep_in(communicator, 5);
      co_await pause;
      if (communicator.rank() == 2) co_return;
      auto group = communicator.start({}, [](Operation&) -> Task<> { co_return; });  // broken, or not
      co_await Engine::Finished(group);
    });
    EXPECT_TRUE(world.is_dead(2));
    EXPECT_EQ(ended.errors[0] == "", says_so) << ended.errors[0];
  }
}

TEST(HeartbeatSim, tells_ranks_whose_settings_differ) {
  SimWorld world({.ranks = 2});
  world.communicator(0).start_heartbeat({.interval_seconds = 0.5, .limit_seconds = 10});
  world.communicator(1).start_heartbeat(kHeartbeat);
  std::vector<std::string> errors;
  for (const auto& error : world.try_run(sum_for_ever)) errors.push_back(describe(error));
  const std::string words = "it beats every 0.5 s with a limit of 10 s, this rank every 0.1 s with a limit of 1 s";
  EXPECT_TRUE(contains(errors[0], words) || contains(errors[1], words)) << errors[0] << "\n" << errors[1];
}

// Both sides of a partition find the other one silent.
TEST(HeartbeatSim, finds_who_cannot_be_heard) {
  SimWorld world({.ranks = 3, .faults = {.partitions = {{1, 5, {2}}}}});
  const Ended ended = run_with_heartbeats(world, sum_for_ever);
  for (const std::string& error : ended.errors) EXPECT_TRUE(contains(error, "it has been silent for")) << error;
  for (const double seconds : ended.seconds) EXPECT_LT(seconds, 1 + kHeartbeat.limit_seconds + 0.2);
}

// What a simulation that can do nothing any more says, off and on; heartbeats alone do not keep it alive.
TEST(HeartbeatSim, lets_a_simulation_come_to_a_stop) {
  for (const Heartbeat& heartbeat : {Heartbeat(), kHeartbeat}) {
    SimWorld world({.ranks = 3});
    const std::string error = error_of([&] {
      run_with_heartbeats(
          world,
          [](Communicator& communicator) -> Task<> {
            DatagramPort port(communicator);
            auto nothing = port.receive();
            co_await nothing;
          },
          heartbeat);
    });
    EXPECT_TRUE(contains(error, "the simulation has come to a stop")) << error;
    EXPECT_LE(world.elapsed_seconds(), 3 * kHeartbeat.limit_seconds);
    EXPECT_EQ(world.totals().messages == 0, !heartbeat.is_on());
    EXPECT_EQ(world.elapsed_seconds() == 0, !heartbeat.is_on());
  }
}

TEST(HeartbeatSim, tells_ports_that_wait_without_an_end) {
  SimWorld world({.ranks = 3, .faults = {.deaths = {{1, 20, std::nullopt}}}});
  const Ended ended = run_with_heartbeats(world, [](Communicator& communicator) -> Task<> {
    communicator.set_peer_policy(PeerPolicy::tells);
    DatagramPort port(communicator);
    auto news = port.receive();
    const Datagram datagram = co_await news;
    EXPECT_EQ(datagram.from, 1);
    EXPECT_TRUE(datagram.failure.has_value());
  });
  EXPECT_EQ(ended.errors[0], "");
  EXPECT_EQ(ended.errors[2], "");
}

TEST(HeartbeatSim, off_sends_nothing_and_changes_no_clock) {
  const auto run = [](const Heartbeat& heartbeat) {
    SimWorld world({.ranks = 4});
    run_with_heartbeats(
        world,
        [](Communicator& communicator) -> Task<> {
          for (int i = 0; i < 10; ++i) {
            auto request = ibarrier(communicator);
            co_await request;
          }
        },
        heartbeat);
    return std::pair(world.totals().messages, world.elapsed_seconds());
  };
  const auto [off_messages, off_seconds] = run({});
  const auto [on_messages, on_seconds] = run(kHeartbeat);
  EXPECT_EQ(off_messages, 10u * 4 * 2);
  EXPECT_EQ(on_messages, off_messages + 4 * 3);  // the first beats: nobody was silent for an interval
  EXPECT_LT(off_seconds, on_seconds);
}

// ---------------------------------------------------------------- on threads

// Limits are far away: what counts is that beats, operations and ends of ranks do not meet in the wrong way.
TEST(HeartbeatThreads, beat_beside_operations_and_ends) {
  run_threads(4, [](Communicator& communicator) {
    communicator.start_heartbeat({.interval_seconds = 1e-3, .limit_seconds = 1000});
    EXPECT_TRUE(communicator.engine()->progresses_alone());
    Communicator half = communicator.split(communicator.rank() % 2);
    for (int i = 0; i < 100; ++i) {
      barrier(half);
      EXPECT_EQ(combine(communicator, std::vector<double>{1})[0], 4);
    }
  });
}

}  // namespace
}  // namespace tulle
