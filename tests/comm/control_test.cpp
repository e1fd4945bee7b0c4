// The control plane and datagrams, on any number of ranks.
#include "tulle/comm/control.hpp"

#include <gtest/gtest.h>

#include "comm/loopback.hpp"
#include "tulle/comm/datagram.hpp"
#include "tulle/comm/sim.hpp"
#include "tulle/comm/threads.hpp"

namespace tulle::testing {
namespace {

Buffer bytes_of(std::string_view text) { return Buffer::copy_of(std::as_bytes(std::span(text))); }
std::string text_of(const Buffer& buffer) { return {reinterpret_cast<const char*>(buffer.data()), buffer.size()}; }
Segments one(std::string_view text) {
  Segments segments;
  segments.push_back(bytes_of(text));
  return segments;
}

class ControlPlane : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, ControlPlane, ::testing::Values(1, 2, 3, 5, 8, 13),
                         [](const auto& ranks) { return std::to_string(ranks.param); });

TEST_P(ControlPlane, combines_in_the_order_of_ranks) {
  SimWorld world({.ranks = GetParam(), .faults = {.max_delay_seconds = 1}});
  double expected = 0;
  for (int rank = 0; rank < GetParam(); ++rank) expected += 0.1 * rank;
  world.run([&](Communicator& communicator) -> Task<> {
    const double mine[] = {0.1 * communicator.rank(), 1.0 * communicator.rank()};
    auto request = icombine(communicator, mine);
    const std::vector<double> sum = co_await request;
    EXPECT_EQ(sum[0], expected);  // to the bit
    auto most = icombine(communicator, mine, Op::max());
    const std::vector<double> largest = co_await most;
    EXPECT_EQ(largest[1], communicator.size() - 1);
  });
}

TEST_P(ControlPlane, gives_everyone_the_bytes_of_the_root_and_of_everyone) {
  run_threads(GetParam(), [](Communicator& communicator) {
    const std::string mine(static_cast<std::size_t>(communicator.rank()), static_cast<char>('a' + communicator.rank()));
    const std::vector<Buffer> all = gather_bytes(communicator, bytes_of(mine));
    for (int rank = 0; rank < communicator.size(); ++rank) {
      EXPECT_EQ(text_of(all[static_cast<std::size_t>(rank)]),
                std::string(static_cast<std::size_t>(rank), static_cast<char>('a' + rank)));
    }
    const int root = communicator.size() - 1;
    EXPECT_EQ(text_of(broadcast_bytes(communicator, bytes_of(mine), root)),
              std::string(static_cast<std::size_t>(root), static_cast<char>('a' + root)));
    EXPECT_EQ(error_of([&] { broadcast_bytes(communicator, {}, communicator.size()); }).first, ErrorKind::bad_input);
    barrier(communicator);
  });
}

TEST_P(ControlPlane, what_rank_0_gives_comes_to_the_takers_alone) {
  run_threads(GetParam(), [](Communicator& communicator) {
    for (int first = 1; first <= communicator.size(); ++first) {
      const std::string text = communicator.rank() == 0 ? "given " + std::to_string(first) : "not looked at";
      const Buffer taken = give_bytes(communicator, bytes_of(text), first);
      EXPECT_EQ(text_of(taken), communicator.rank() >= first ? "given " + std::to_string(first) : "");
    }
  });
}

TEST_P(ControlPlane, a_barrier_ends_after_everyone_has_begun) {
  SimWorld world({.ranks = GetParam(), .faults = {.max_delay_seconds = 1}});
  int begun = 0;
  world.run([&](Communicator& communicator) -> Task<> {
    begun += 1;
    auto request = ibarrier(communicator);
    co_await request;
    EXPECT_EQ(begun, communicator.size());
  });
}

TEST_P(ControlPlane, everyone_throws_the_error_of_the_lowest_rank_that_has_one) {
  run_threads(GetParam(), [](Communicator& communicator) {
    fail_together(communicator, nullptr);
    const bool fails = communicator.rank() >= communicator.size() / 2;
    const std::exception_ptr mine = failure_of([&] {
      if (fails) throw Error(ErrorKind::unsupported, "rank " + std::to_string(communicator.rank()) + " cannot");
    });
    const auto [kind, text] = error_of([&] { fail_together(communicator, mine); });
    EXPECT_EQ(kind, ErrorKind::unsupported);
    EXPECT_EQ(text, "rank " + std::to_string(communicator.size() / 2) + " cannot");
    barrier(communicator);  // it stays usable
  });
}

TEST(ControlPlane, tells_everyone_of_failures_that_are_no_exceptions) {
  run_threads(2, [](Communicator& communicator) {
    communicator.set_default_deadline(20);
    const std::exception_ptr mine = communicator.rank() == 1 ? std::make_exception_ptr(7) : nullptr;
    const auto [kind, text] = error_of([&] { fail_together(communicator, mine); });
    EXPECT_EQ(kind, ErrorKind::system);
    EXPECT_NE(text.find("no std::exception"), text.npos) << text;
    barrier(communicator);  // it stays usable
  });
}

TEST(ControlPlane, tells_ranks_that_give_different_numbers_of_values) {
  SimWorld world({.ranks = 3});
  for (const auto& error : world.try_run([](Communicator& communicator) -> Task<> {
         const std::vector<double> mine(communicator.rank() == 1 ? 2 : 1);
         auto request = icombine(communicator, mine);
         co_await request;
       })) {
    EXPECT_TRUE(error);
  }
}

TEST(Breaking, tells_its_reason_also_to_ranks_that_are_ahead) {
  LoopbackWorld world(2);
  Request<void> waiting = ibarrier(world[0]);
  world.settle();  // its message is at the other rank, which has not called
  break_communicator(world[1], Error(ErrorKind::system, "no more data"));
  world.settle();
  try {
    waiting.wait();
    ADD_FAILURE() << "the barrier ended";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::peer_failed);
    EXPECT_NE(std::string_view(error.what()).find("no more data"), std::string_view::npos) << error.what();
  }
}

// What a rank calls after it has given up must not be the first that the others hear of it: they are in another call.
TEST(ControlPlane, what_breaks_is_told_before_anything_that_is_called_next) {
  for (int turn = 0; turn < 100; ++turn) {
    run_threads(2, [](Communicator& communicator) {
      communicator.set_default_deadline(20);
      communicator.start_progress_thread();
      barrier(communicator);
      if (communicator.rank() == 1) {
        const double mine[] = {1};
        const auto [kind, text] = error_of([&] { combine(communicator, mine); });
        EXPECT_TRUE(kind == ErrorKind::peer_failed || kind == ErrorKind::broken) << text;  // told in the call or before
        EXPECT_NE(text.find("no more data"), text.npos) << text;
        return;
      }
      break_communicator(communicator, Error(ErrorKind::system, "no more data"));
      EXPECT_EQ(error_of([&] { barrier(communicator); }).first, ErrorKind::broken);
    });
  }
}

TEST(Datagrams, arrive_at_the_port_of_their_number_also_before_it_opens) {
  run_threads(3, [](Communicator& communicator) {
    communicator.set_default_deadline(20);
    if (communicator.rank() != 0) {
      DatagramPort port(communicator, 7);
      port.send(0, one("from " + std::to_string(communicator.rank())));
      const std::optional<Datagram> answer = port.receive_for(20);
      ASSERT_TRUE(answer.has_value());
      EXPECT_EQ(text_of(answer->segments.at(0)), "answer");
    }
    if (communicator.rank() == 0) {
      EXPECT_FALSE(DatagramPort(communicator, 8).receive_for(0.05).has_value());
      DatagramPort port(communicator, 7);
      EXPECT_EQ(error_of([&] { DatagramPort second(communicator, 7); }).first, ErrorKind::bad_input);
      for (int i = 0; i < 2; ++i) {
        const std::optional<Datagram> got = port.receive_for(20);
        ASSERT_TRUE(got.has_value());
        EXPECT_EQ(text_of(got->segments.at(0)), "from " + std::to_string(got->from));
        port.send(got->from, one("answer"));
      }
    }
    barrier(communicator);
  });
}

TEST(Datagrams, are_awaited_by_programs) {
  SimWorld world({.ranks = 4});
  world.run([](Communicator& communicator) -> Task<> {
    DatagramPort port(communicator, 1);
    if (communicator.rank() != 0) port.send(0, one(std::to_string(communicator.rank())));
    for (int i = 1; communicator.rank() == 0 && i < communicator.size(); ++i) {
      const Datagram got = co_await port.receive();
      EXPECT_EQ(text_of(got.segments.at(0)), std::to_string(got.from));
    }
    auto request = ibarrier(communicator);
    co_await request;
  });
}

TEST(Datagrams, that_come_when_who_waited_has_ended_are_kept) {
  LoopbackWorld world(2);
  DatagramPort left(world[0]), right(world[1]);
  std::optional<DatagramPort> first(std::in_place, world[0], 1u);
  const auto waits_for_ever = [&first](Operation&) -> Task<> { const Datagram got = co_await first->receive(); };
  const auto survivor = world[0].channel(1).start({}, waits_for_ever);
  first.reset();  // before who waits for it, which ends with the communicator
  const auto operation = world[0].start({.borrows = true}, [&left](Operation&) -> Task<> {
    const Datagram got = co_await left.receive();
    ADD_FAILURE() << "woken after its end";
  });
  world.settle();
  EXPECT_FALSE(operation->is_finished());
  world[0].engine()->drop(operation);  // ends where it waits
  pool_trim();                         // what ended is not there any more
  right.send(0, one("late"));
  world.settle();
  const std::optional<Datagram> got = left.try_receive();
  ASSERT_TRUE(got.has_value());
  EXPECT_EQ(text_of(got->segments.at(0)), "late");
}

TEST(Datagrams, are_awaited_for_a_while_only) {
  SimWorld world({.ranks = 2});
  world.run([](Communicator& communicator) -> Task<> {
    DatagramPort port(communicator, 1), silence(communicator, 2);
    if (communicator.rank() == 0) {
      for (const char* text : {"first", "second"}) {
        DatagramPort::ReceiveWithin waiting = silence.receive_within(4);
        const std::optional<Datagram> none = co_await waiting;
        EXPECT_FALSE(none.has_value());
        port.send(1, one(text));
      }
      EXPECT_GE(communicator.engine()->transport().now(), 8);
    } else {
      // The time of the first wait ends while the second waits, and concerns it no more.
      for (const auto& [text, seconds] : {std::pair("first", 5.0), std::pair("second", 50.0)}) {
        DatagramPort::ReceiveWithin waiting = port.receive_within(seconds);
        const std::optional<Datagram> got = co_await waiting;
        EXPECT_TRUE(got.has_value() && text_of(got->segments.at(0)) == text) << text;
      }
    }
    auto request = ibarrier(communicator);
    co_await request;
  });
}

TEST(Datagrams, what_is_computed_after_a_wait_begins_when_that_has_ended) {
  SimWorld world({.ranks = 1});
  world.run([](Communicator& communicator) -> Task<> {
    Transport& transport = communicator.engine()->transport();
    DatagramPort silence(communicator, 2);
    DatagramPort::ReceiveWithin waiting = silence.receive_within(4);
    co_await waiting;
    transport.charge(0.5);
    EXPECT_DOUBLE_EQ(transport.now(), 4.5);
  });
  EXPECT_DOUBLE_EQ(world.elapsed_seconds(), 4.5);
}

// Suspends a coroutine and tells its handle.
struct Sleep {
  std::coroutine_handle<Task<>::promise_type>& handle;
  bool await_ready() const { return false; }
  void await_suspend(std::coroutine_handle<Task<>::promise_type> sleeper) const { handle = sleeper; }
  void await_resume() const {}
};

TEST(Datagrams, a_wait_that_was_dropped_wakes_nobody) {
  LoopbackWorld world(2);
  DatagramPort left(world[0]), right(world[1]);
  std::coroutine_handle<Task<>::promise_type> handle;
  bool is_awake = false;
  Task<> sleeping = [](std::coroutine_handle<Task<>::promise_type>& its_handle, bool& its_state) -> Task<> {
    Sleep sleep{its_handle};
    co_await sleep;
    its_state = true;
  }(handle, is_awake);
  world[1].engine()->spawn(sleeping);
  world.settle();
  {
    DatagramPort::ReceiveWithin waiting = right.receive_within(1);
    EXPECT_FALSE(waiting.await_ready());
    waiting.await_suspend(handle);
  }
  left.send(1, one("for nobody"));
  world.settle();
  EXPECT_FALSE(is_awake);
  EXPECT_TRUE(right.try_receive().has_value());
}

TEST(Datagrams, go_on_when_collectives_are_broken_and_tell_who_is_gone) {
  LoopbackWorld world(3);
  world[0].set_peer_policy(PeerPolicy::tells);
  DatagramPort left(world[0]), right(world[1]);
  world.transport(0).sink().fail_peer(2, ErrorKind::peer_failed, "its host is gone");
  const std::optional<Datagram> news = left.try_receive();
  ASSERT_TRUE(news.has_value() && news->failure.has_value());
  EXPECT_EQ(news->from, 2);
  EXPECT_EQ(news->failure->kind(), ErrorKind::peer_failed);
  EXPECT_NE(std::string(news->failure->what()).find("its host is gone"), std::string::npos);
  EXPECT_EQ(error_of([&] { barrier(world[0]); }).first, ErrorKind::broken);
  left.send(1, one("still here"));
  world.settle();
  const std::optional<Datagram> got = right.try_receive();
  ASSERT_TRUE(got.has_value() && !got->failure.has_value());
  EXPECT_EQ(text_of(got->segments.at(0)), "still here");
}

}  // namespace
}  // namespace tulle::testing
