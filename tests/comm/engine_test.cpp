// The engine where the simulator does not look: exceptions from everywhere, handles that go early, many at a time.
#include "tulle/comm/engine.hpp"

#include <gtest/gtest.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <latch>
#include <stdexcept>
#include <thread>

#include "comm/context_table.hpp"
#include "comm/loopback.hpp"
#include "tulle/comm/sim.hpp"
#include "tulle/comm/threads.hpp"

namespace tulle::testing {
namespace {

using std::string_literals::operator""s;

// Everyone sends to everyone and receives from everyone.
Task<> exchange_all(Operation& operation) {
  for (int peer = 0; peer < operation.size(); ++peer) {
    if (peer != operation.rank()) operation.send(peer, 0, {}, 0);
  }
  for (int i = 1; i < operation.size(); ++i) co_await operation.receive_next(0);
}

std::shared_ptr<Operation> start_exchange(const Communicator& communicator) {
  return communicator.start({.deadline_seconds = 20}, exchange_all);
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST(BlockingCall, inside_a_program_throws_at_once) {
  SimWorld world({.ranks = 2});
  for (const auto& error : world.try_run([](Communicator& communicator) -> Task<> {
         communicator.split(0);
         co_return;
       })) {
    const auto [kind, text] = error_of([&] { std::rethrow_exception(error); });
    EXPECT_EQ(kind, ErrorKind::bad_input);
    EXPECT_TRUE(contains(text, "co_await")) << text;
  }
  EXPECT_EQ(world.elapsed_seconds(), 0);
  run_threads(2, [](Communicator& communicator) {
    const auto [kind, text] = error_of([&] {
      run_program(communicator, [](Communicator& inside) -> Task<> {
        inside.split(0);
        co_return;
      });
    });
    EXPECT_EQ(kind, ErrorKind::bad_input) << text;
  });
}

TEST(Exceptions, of_an_operation_become_its_error_whatever_they_are) {
  const std::vector<std::pair<std::function<void()>, std::string>> cases = {
      {[] { throw 7; }, "no std::exception"},
      {[] { throw std::logic_error("on purpose"); }, "on purpose"},
      {[] { throw Error(ErrorKind::bad_input, "told"); }, "told"}};
  for (const auto& [thrower, words] : cases) {
    LoopbackWorld world(2);
    const auto body = [&](Operation& operation) -> Task<> {
      if (operation.rank() == 0) thrower();
      co_await operation.receive(1 - operation.rank(), 0);
    };
    const auto failing = world[0].start({}, body), other = world[1].start({}, body);
    world.settle();
    const auto [kind, text] = error_of([&] { world[0].engine()->wait(*failing); });
    EXPECT_TRUE(kind.has_value() && contains(text, words)) << text;
    EXPECT_EQ(error_of([&] { world[1].engine()->wait(*other); }).first, ErrorKind::peer_failed);
    EXPECT_EQ(error_of([&] { start_exchange(world[0]); }).first, ErrorKind::broken);
  }
}

// A process that was stopped, or a machine that is busy: no peer is to blame, and none is named.
TEST(Deadlines, of_an_operation_that_waits_for_nobody_say_so) {
  LoopbackWorld world(2);
  const auto operation = world[0].start({.deadline_seconds = 1}, [&](Operation&) -> Task<> {
    world.transport(0).pass(10);
    co_return;
  });
  const auto [kind, text] = error_of([&] { world[0].engine()->wait(*operation); });
  EXPECT_EQ(kind, ErrorKind::deadline);
  EXPECT_TRUE(contains(text, "it waits for nobody")) << text;
}

TEST(Exceptions, of_a_program_reach_its_caller_and_leave_the_engine_usable) {
  run_threads(2, [](Communicator& communicator) {
    for (const bool with_thread : {false, true}) {
      if (with_thread) communicator.start_progress_thread();
      EXPECT_THROW(run_program(communicator,
                               [](Communicator&) -> Task<> {
                                 throw 7;
                                 co_return;
                               }),
                   int);
      communicator.engine()->wait(*start_exchange(communicator));
    }
  });
}

TEST(Exceptions, of_a_poll_of_the_transport_break_with_its_words) {
  for (const bool is_standard : {true, false}) {
    LoopbackWorld world(2);
    const auto operation = start_exchange(world[0]);
    world.transport(0).on_poll = [=] {
      if (is_standard) throw std::bad_alloc();
      throw "text";
    };
    const auto [kind, text] = error_of([&] { world[0].engine()->wait(*operation); });
    EXPECT_EQ(kind, ErrorKind::system);
    EXPECT_TRUE(contains(text, "the transport failed")) << text;
    world.transport(0).on_poll = nullptr;
    EXPECT_EQ(error_of([&] { start_exchange(world[0]); }).first, ErrorKind::broken);
  }
}

TEST(Exceptions, of_the_progress_threads_poll_do_not_end_the_process) {
  const auto shared = std::make_shared<Loopback>(2);
  auto transport = std::make_unique<LoopbackTransport>(shared, 0);
  LoopbackTransport& inside = *transport;
  std::atomic<bool> fails = false;
  inside.on_poll = [&] {
    if (fails) throw std::bad_alloc();
  };
  Communicator communicator(std::move(transport));
  communicator.start_progress_thread();
  const auto operation = communicator.start({.deadline_seconds = 1e9}, exchange_all);
  fails = true;
  EXPECT_EQ(error_of([&] { communicator.engine()->wait(*operation); }).first, ErrorKind::system);
  EXPECT_EQ(error_of([&] { start_exchange(communicator); }).first, ErrorKind::broken);
}

TEST(Exceptions, of_what_is_polled_for_break_the_communicator) {
  LoopbackWorld world(1);
  int asked = 0;
  const auto operation = world[0].start({}, [&](Operation& started) -> Task<> {
    co_await started.poll_until([&]() -> bool {
      if (++asked > 1) throw 7;
      return false;
    });
  });
  EXPECT_EQ(error_of([&] { world[0].engine()->wait(*operation); }).first, ErrorKind::system);
}

TEST(Exceptions, of_a_landing_are_passed_over) {
  LoopbackWorld world(2);
  const auto operation = world[1].start({}, [](Operation& started) -> Task<> {
    const Operation::Landing landing(
        started, [](Step, std::span<const Buffer>, std::size_t, std::uint64_t) -> Buffer { throw 7; });
    co_await started.receive(0, 0);
  });
  MessageHeader header;
  header.fingerprint = CallSignature{}.fingerprint();
  const Buffer head = encode_message_head(header, {});
  EXPECT_TRUE(world.transport(1).sink().landing_for(0, head.bytes(), {}, 0, 8).empty());
}

TEST(Landing, of_the_youngest_that_answers_decides_and_ends_with_its_scope) {
  LoopbackWorld world(2);
  const Buffer first = Buffer::allocate(8), second = Buffer::allocate(8);
  const auto body = [&](Operation& started) -> Task<> {
    const Operation::Landing older(started,
                                   [&](Step, std::span<const Buffer>, std::size_t, std::uint64_t) { return first; });
    {
      const Operation::Landing younger(started, [&](Step step, std::span<const Buffer>, std::size_t, std::uint64_t) {
        return step == 1 ? second : Buffer();
      });
      co_await started.receive(0, 0);
    }
    co_await started.receive(0, 5);
  };
  const auto operation = world[1].start({}, body);
  const auto asked = [&](Step step) {
    MessageHeader header;
    header.fingerprint = CallSignature{}.fingerprint();
    header.step = step;
    return world.transport(1).sink().landing_for(0, encode_message_head(header, {}).bytes(), {}, 0, 8).data();
  };
  EXPECT_EQ(asked(1), second.data());
  EXPECT_EQ(asked(2), first.data());
  const auto sender = world[0].start({}, [](Operation& started) -> Task<> {
    started.send(1, 0, {}, 0);
    co_return;
  });
  world.settle();
  EXPECT_EQ(asked(1), first.data());
}

TEST(Handles, that_go_while_the_progress_thread_finishes_a_split_end_the_engine_quietly) {
  for (int round = 0; round < 50; ++round) {
    run_threads(2, [&](Communicator& given) {
      Communicator communicator = given;
      given = communicator.channel(0);
      communicator.start_progress_thread();
      (void)communicator.isplit(0);
      std::this_thread::sleep_for(std::chrono::microseconds(20 * round));
    });
  }
}

TEST(Handles, that_a_coroutine_holds_last_do_not_make_the_engine_wait_for_itself) {
  for (const bool with_thread : {false, true}) {
    const auto shared = std::make_shared<Loopback>(1);
    std::atomic<bool> is_over = false;
    {
      Communicator communicator(std::make_unique<LoopbackTransport>(shared, 0));
      if (with_thread) communicator.start_progress_thread();
      std::atomic<bool> may_go = false;
      const auto body = [](Operation& operation, Communicator held, std::atomic<bool>& go,
                           std::atomic<bool>& over) -> Task<> {
        co_await operation.poll_until([&] { return go.load(); });
        { const Communicator last = std::move(held); }
        over = true;
      };
      {
        Communicator given = communicator;
        (void)communicator.start({}, [&](Operation& started) { return body(started, given, may_go, is_over); });
      }
      if (with_thread) {
        communicator = Communicator(std::make_unique<LoopbackTransport>(shared, 0));
        may_go = true;
        for (int i = 0; i < 5000 && !is_over; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        EXPECT_TRUE(is_over);
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
      } else {
        may_go = true;
        communicator.engine()->progress();
      }
    }
  }
}

TEST(Requests, are_moved_and_say_whether_they_hold_something) {
  run_threads(2, [](Communicator& communicator) {
    static_assert(!std::is_copy_constructible_v<Request<Communicator>>);
    Request<Communicator> empty;
    EXPECT_FALSE(empty.valid());
    std::vector<Request<Communicator>> requests;
    for (int i = 0; i < 3; ++i) requests.push_back(communicator.isplit(0));
    EXPECT_LT(wait_any(std::span(requests)), 3u);
    wait_all(std::span(requests));
    for (Request<Communicator>& request : requests) {
      EXPECT_EQ(request.wait().size(), 2);
      EXPECT_FALSE(request.valid());
    }
  });
}

TEST(Requests, of_operations_that_borrow_are_ended_when_they_are_dropped) {
  for (const bool with_thread : {false, true}) {
    std::latch both_have_begun(2);  // the one that drops first breaks the communicator of the other
    run_threads(2, [&](Communicator& communicator) {
      if (with_thread) communicator.start_progress_thread();
      const auto memory = std::make_unique<int>(0);
      std::atomic<bool> has_begun = false;
      {
        const auto body = [&](Operation& operation, int* written) -> Task<> {
          struct AtTheEnd {
            int* place;
            ~AtTheEnd() { *place = 1; }
          } at_the_end{written};
          has_begun = true;
          co_await operation.receive(1 - operation.rank(), 9);
        };
        auto result = std::make_shared<std::optional<std::optional<Error>>>(std::in_place);
        auto operation = communicator.start({.deadline_seconds = 60, .borrows = true},
                                            [&](Operation& started) { return body(started, memory.get()); });
        const Request<void> request(communicator.engine(), std::move(operation), result);
        while (!has_begun) std::this_thread::yield();
        both_have_begun.arrive_and_wait();
      }
      EXPECT_EQ(*memory, 1);  // it was ended, and nobody writes there any more
      EXPECT_EQ(error_of([&] { start_exchange(communicator); }).first, ErrorKind::broken);
    });
  }
}

TEST(Requests, of_operations_that_borrow_may_be_dropped_inside_a_program) {
  SimWorld world({.ranks = 2});
  const auto errors = world.try_run([](Communicator& communicator) -> Task<> {
    const auto body = [](Operation& operation) -> Task<> { co_await operation.receive(1 - operation.rank(), 9); };
    auto result = std::make_shared<std::optional<std::optional<Error>>>();
    auto operation = communicator.start({.deadline_seconds = 60, .borrows = true}, body);
    { const Request<void> dropped(communicator.engine(), operation, result); }
    EXPECT_TRUE(operation->is_finished());
    co_return;
  });
  EXPECT_FALSE(errors[0] || errors[1]);
  EXPECT_LT(world.elapsed_seconds(), 1);
}

// The program ends with its request, which ends the operation, which must not go on with the program.
TEST(Requests, of_operations_that_borrow_may_go_with_the_program_that_awaits_them) {
  LoopbackWorld world(2);
  const auto await_for_ever = [](Communicator& communicator, int& resumed) -> Task<> {
    const auto body = [](Operation& operation) -> Task<> { co_await operation.receive(1 - operation.rank(), 9); };
    auto result = std::make_shared<std::optional<std::optional<Error>>>();
    auto operation = communicator.start({.deadline_seconds = 60, .borrows = true}, body);
    Request<void> request(communicator.engine(), operation, result);
    try {
      co_await request;
    } catch (const Error&) {
      resumed += 1;
    }
  };
  int resumed = 0;
  {
    Task<> program = await_for_ever(world[0], resumed);
    world[0].engine()->spawn(program);
    world.settle();
  }
  EXPECT_EQ(resumed, 0);
  EXPECT_EQ(error_of([&] { start_exchange(world[0]); }).first, ErrorKind::broken);
}

TEST(Operations, that_are_done_wait_for_their_messages_to_leave) {
  LoopbackWorld world(2);
  world.transport(0).holds_tickets = true;
  const auto operation = world[0].start({}, [](Operation& started) -> Task<> {
    started.send(1, 0, {}, 0);
    co_return;
  });
  EXPECT_FALSE(world[0].engine()->test(*operation));
  world.transport(0).held.clear();
  EXPECT_TRUE(world[0].engine()->test(*operation));
}

// ---------------------------------------------------------------- splits and contexts

TEST(Splits, in_flight_on_communicators_that_share_a_rank_get_different_ids) {
  LoopbackWorld world(3);
  std::vector<Request<Communicator>> pairs;
  for (int rank = 0; rank < 3; ++rank) pairs.push_back(world[rank].isplit(rank < 2 ? 0 : 1));
  std::vector<Request<Communicator>> others;
  for (int rank = 0; rank < 3; ++rank) others.push_back(world[rank].isplit(rank > 0 ? 0 : 1));
  world.settle();
  std::vector<Communicator> lower, upper;
  for (auto& request : pairs) lower.push_back(request.wait());
  for (auto& request : others) upper.push_back(request.wait());
  // Ranks 0 and 1 split their pair, ranks 1 and 2 theirs, rank 0 having split before.
  std::vector<Communicator> before;
  for (int i = 0; i < 3; ++i) {
    auto alone = world[0].channel(0).isplit(0);
    auto with1 = world[1].isplit(0);
    auto with2 = world[2].isplit(0);
    world.settle();
    before.push_back(alone.wait());
    (void)with1.wait();
    (void)with2.wait();
  }
  auto a0 = lower[0].isplit(0), a1 = lower[1].isplit(0);
  auto b1 = upper[1].isplit(0), b2 = upper[2].isplit(0);
  world.settle();
  const Communicator first = a1.wait(), second = b1.wait();
  EXPECT_NE(first.context()->id, second.context()->id);
  EXPECT_EQ(first.context()->id, a0.wait().context()->id);
  EXPECT_EQ(second.context()->id, b2.wait().context()->id);
}

// Rank 0 has its child, fails in the next operation, and rank 1 hears of both before it goes on: what came before the
// failure still completes there, and its child must not inherit what rank 0's has not.
TEST(Splits, of_a_communicator_that_breaks_meanwhile_give_children_that_work) {
  LoopbackWorld world(2);
  auto first = world[0].isplit(0), second = world[1].isplit(0);
  Communicator left = first.wait();
  (void)world[0].start({}, [](Operation&) -> Task<> {
    throw Error(ErrorKind::bad_input, "on purpose");
    co_return;
  });
  world.transport(1).poll();  // what rank 0 sent for the split
  world.transport(1).poll();  // that it has failed
  Communicator right = second.wait();
  for (const int rank : {0, 1}) {
    EXPECT_EQ(error_of([&] { start_exchange(world[rank]); }).first, ErrorKind::broken) << rank;
  }
  const auto a = start_exchange(left), b = start_exchange(right);
  world.settle();
  left.engine()->wait(*a);
  right.engine()->wait(*b);
}

TEST(Contexts, are_freed_and_their_ids_used_again_in_another_generation) {
  LoopbackWorld world(2);
  std::optional<ContextId> earlier;
  for (int round = 0; round < 5; ++round) {
    auto first = world[0].isplit(0), second = world[1].isplit(0);
    world.settle();
    const Communicator left = first.wait(), right = second.wait();
    const ContextId id = left.context()->id;
    EXPECT_EQ(id.allocator, 0u);
    if (earlier) {
      EXPECT_EQ(id.slot, earlier->slot);
      EXPECT_EQ(id.generation, earlier->generation + 1);
    }
    earlier = id;
  }
}

// A rank that has seen the first communicator of a slot and then none for long must still know a new one from an old
// one.
TEST(Contexts, are_told_from_old_ones_however_often_a_slot_was_used) {
  const auto table = std::make_shared<ContextTable>(0), elsewhere = std::make_shared<ContextTable>(1);
  const auto live_and_end = [](ContextTable& at, ContextId id) {
    const auto context = std::make_shared<Context>();
    context->id = id;
    context->table = at.shared_from_this();
    at.add(context);
  };
  ContextId latest = table->reserve();
  live_and_end(*elsewhere, latest);
  for (int i = 0; i < 200'000; ++i) {
    live_and_end(*table, latest);
    ASSERT_TRUE(table->is_gone(latest));
    const ContextId next = table->reserve();
    ASSERT_FALSE(table->is_gone(next)) << i;
    ASSERT_FALSE(elsewhere->is_gone(next)) << i;
    ASSERT_LT(latest, next);  // none is given twice
    latest = next;
  }
}

TEST(Contexts, that_are_gone_take_no_late_messages) {
  LoopbackWorld world(2);
  auto first = world[0].isplit(0), second = world[1].isplit(0);
  world.settle();
  std::optional<Communicator> left = first.wait(), right = second.wait();
  MessageHeader late;
  late.context = right->context()->id;
  left.reset();
  right.reset();
  const auto deliver = [&] { world.transport(1).sink().deliver(0, {encode_message_head(late, {}), {}, nullptr, 0}); };
  deliver();
  auto third = world[0].isplit(0), fourth = world[1].isplit(0);
  world.settle();
  Communicator again = third.wait(), same = fourth.wait();
  ASSERT_EQ(again.context()->id.slot, late.context.slot);
  deliver();  // would be the first message of its first operation, by slot alone
  const auto a = start_exchange(again), b = start_exchange(same);
  world.settle();
  again.engine()->wait(*a);
  same.engine()->wait(*b);
}

TEST(Contexts, refuse_messages_of_non_members) {
  LoopbackWorld world(3);
  std::vector<Request<Communicator>> requests;
  for (int rank = 0; rank < 3; ++rank) requests.push_back(world[rank].isplit(rank < 2 ? 0 : 1));
  world.settle();
  Communicator pair = requests[0].wait();
  const auto operation = pair.start({.deadline_seconds = 1}, exchange_all);
  MessageHeader header;
  header.context = pair.context()->id;
  header.fingerprint = CallSignature{}.fingerprint();
  world.transport(0).sink().deliver(2, {encode_message_head(header, {}), {}, nullptr, 0});
  EXPECT_FALSE(operation->is_finished());  // rank 2 is none of its members, and disturbs those that it shares alone
  EXPECT_TRUE(contains(error_of([&] { start_exchange(world[0]); }).second, "no member"));
}

TEST(Peers, that_fail_concern_the_communicators_that_have_them) {
  LoopbackWorld world(3);
  std::vector<Request<Communicator>> requests;
  for (int rank = 0; rank < 3; ++rank) requests.push_back(world[rank].isplit(rank < 2 ? 0 : 1));
  world.settle();
  Communicator left = requests[0].wait(), right = requests[1].wait();
  for (const int rank : {0, 1}) world.transport(rank).sink().fail_peer(2, ErrorKind::peer_failed, "its host is gone");
  const auto [kind, text] = error_of([&] { start_exchange(world[0]); });
  EXPECT_EQ(kind, ErrorKind::broken);
  EXPECT_TRUE(contains(text, "rank 2 is lost: its host is gone")) << text;
  const auto a = start_exchange(left), b = start_exchange(right);
  world.settle();
  left.engine()->wait(*a);
  right.engine()->wait(*b);
}

TEST(Peers, that_left_are_not_waited_for) {
  LoopbackWorld world(3);
  const auto waiting = start_exchange(world[0]), other = start_exchange(world[1]);
  world.settle();
  world.transport(0).sink().peer_left(2);
  const auto [kind, text] = error_of([&] { world[0].engine()->wait(*waiting); });
  EXPECT_EQ(kind, ErrorKind::peer_failed);
  EXPECT_TRUE(contains(text, "waits in step 0 for rank 2, which left the job")) << text;
  world.settle();
  EXPECT_EQ(error_of([&] { world[1].engine()->wait(*other); }).first, ErrorKind::peer_failed);  // it is told
}

TEST(Peers, that_left_before_a_call_are_not_waited_for) {
  LoopbackWorld world(2);
  world.transport(0).sink().peer_left(1);
  const auto direct =
      world[0].start({.deadline_seconds = 20}, [](Operation& started) -> Task<> { co_await started.receive(1, 7); });
  EXPECT_EQ(error_of([&] { world[0].engine()->wait(*direct); }).first, ErrorKind::peer_failed);
}

TEST(Peers, that_left_are_missed_by_none_who_has_their_messages) {
  LoopbackWorld world(2);
  const auto theirs = start_exchange(world[1]);
  world[1].engine()->progress();
  world[0].engine()->progress();  // takes the message for a call that comes later
  world.transport(0).sink().peer_left(1);
  const auto mine = start_exchange(world[0]);
  world.settle();
  world[0].engine()->wait(*mine);
  world[1].engine()->wait(*theirs);
}

// ---------------------------------------------------------------- channels

TEST(Channels, let_ranks_start_in_any_order) {
  constexpr int kRanks = 4, kTensors = 20;
  run_threads(kRanks, [](Communicator& communicator) {
    std::vector<int> order(kTensors);
    for (int i = 0; i < kTensors; ++i)
      order[static_cast<std::size_t>(i)] = (i * 7 + communicator.rank() * 3) % kTensors;
    for (int step = 0; step < 3; ++step) {
      std::vector<std::shared_ptr<Operation>> operations;
      for (const int tensor : order) {
        OperationSettings settings;
        settings.signature.dimension = static_cast<std::uint64_t>(tensor);  // another one would be a mismatch
        operations.push_back(communicator.channel(static_cast<std::uint32_t>(tensor)).start(settings, exchange_all));
      }
      for (const auto& operation : operations) communicator.engine()->wait(*operation);
    }
  });
}

TEST(Channels, break_together_and_say_where) {
  LoopbackWorld world(2);
  const auto other = world[1].channel(5).start({}, exchange_all);
  const auto failing = world[0].channel(9).start({}, [](Operation&) -> Task<> {
    throw Error(ErrorKind::bad_input, "on purpose");
    co_return;
  });
  world.settle();
  EXPECT_EQ(error_of([&] { world[1].engine()->wait(*other); }).first, ErrorKind::peer_failed);
  EXPECT_EQ(error_of([&] { start_exchange(world[1]); }).first, ErrorKind::broken);
  EXPECT_EQ(error_of([&] { world[0].channel(kMostChannels); }).first, ErrorKind::bad_input);
}

TEST(EarlyMessages, that_nobody_reads_are_bounded) {
  LoopbackWorld world(2);
  world[1].engine()->set_most_early_bytes(10'000);
  const auto send_a_kilobyte = [](Operation& operation) -> Task<> {
    Segments segments;
    segments.push_back(Buffer::allocate(1000));
    operation.send(1, 0, std::move(segments), 0);
    co_return;
  };
  for (std::uint32_t channel = 1; channel <= 20; ++channel) world[0].channel(channel).start({}, send_a_kilobyte);
  world.settle();
  const auto [kind, text] = error_of([&] { start_exchange(world[1]); });
  EXPECT_EQ(kind, ErrorKind::broken);
  EXPECT_TRUE(contains(text, "more than the 10000 bytes")) << text;
}

// ---------------------------------------------------------------- many at a time, and cheap starts

// Seconds that one more operation takes beside so many that wait for a peer, and so many contexts.
double seconds_beside(int operations, int contexts) {
  LoopbackWorld world(2);
  std::vector<Communicator> kept;
  for (int i = 0; i < contexts; ++i) {
    auto first = world[0].isplit(0), second = world[1].isplit(0);
    world.settle();
    kept.push_back(first.wait());
    kept.push_back(second.wait());
  }
  for (int i = 0; i < operations; ++i) {
    world[0].channel(static_cast<std::uint32_t>(i + 1)).start({.deadline_seconds = 1e9}, exchange_all);
  }
  std::vector<double> seconds;
  for (int i = 0; i < 200; ++i) {
    const auto start = std::chrono::steady_clock::now();
    const auto a = start_exchange(world[0]), b = start_exchange(world[1]);
    while (!(a->is_finished() && b->is_finished())) world.settle();
    seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  std::ranges::nth_element(seconds, seconds.begin() + 100);
  return seconds[100];
}

TEST(Scale, ten_thousand_operations_and_contexts_cost_no_more_each_than_ten) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers change what is slow";
#endif
  const double few = seconds_beside(10, 10), many = seconds_beside(10'000, 10'000);
  EXPECT_LT(many, 5 * few);  // a walk over all of them would take a hundred times as long
}

double cpu_seconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

TEST(Start, with_a_progress_thread_neither_computes_nor_waits_for_who_computes) {
  run_threads(2, [](Communicator& communicator) {
    communicator.start_progress_thread();
    const std::thread::id caller = std::this_thread::get_id();
    std::atomic<bool> computes = false, may_end = false;
    const auto compute = [&](Operation& operation) -> Task<> {
      EXPECT_NE(std::this_thread::get_id(), caller);
      EXPECT_EQ(EngineLock::held_by_this_thread(), 0);
      computes = true;
      while (!may_end) std::this_thread::yield();
      co_await exchange_all(operation);
    };
    const auto large = communicator.channel(1).start({.deadline_seconds = 60}, compute);
    while (!computes) std::this_thread::yield();
    std::vector<double> seconds;
    std::vector<std::shared_ptr<Operation>> small;
    for (int i = 0; i < 500; ++i) {
      const double start = cpu_seconds();
      small.push_back(start_exchange(communicator));
      seconds.push_back(cpu_seconds() - start);
    }
    std::ranges::sort(seconds);
    may_end = true;
    communicator.engine()->wait(*large);
    for (const auto& operation : small) communicator.engine()->wait(*operation);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    EXPECT_LT(seconds[seconds.size() * 99 / 100], 50e-6);
#endif
  });
}

TEST(Start, keeps_what_a_lambda_captures_until_its_task_is_over) {
  LoopbackWorld world(2);
  const auto kept = std::make_shared<int>(7);
  int seen = 0;
  const auto receiver = world[0].start({}, [copy = kept, &seen](Operation& started) -> Task<> {
    co_await started.receive(1, 0);
    seen = *copy;
  });
  EXPECT_EQ(kept.use_count(), 2);
  const auto sender = world[1].start({}, [](Operation& started) -> Task<> {
    started.send(0, 0, {}, 0);
    co_return;
  });
  while (!(receiver->is_finished() && sender->is_finished())) world.settle();
  EXPECT_EQ(seen, 7);
  EXPECT_EQ(kept.use_count(), 1);
}

TEST(Start, without_a_progress_thread_lets_the_first_messages_leave) {
  LoopbackWorld world(2);
  const auto operation = start_exchange(world[0]);
  EXPECT_TRUE(world.transport(1).poll());  // it is there, and nobody but the call can have sent it
}

std::atomic<int> operations_begun = 0;

Task<> count_and_end(Operation&) {
  operations_begun += 1;
  co_return;
}

// Nobody waits for these: whoever finds the drive taken relies on the driver to take up what it has queued.
TEST(Start, of_several_threads_at_once_leaves_nothing_behind) {
  constexpr int kThreads = 4, kRounds = 2000;
  const auto shared = std::make_shared<Loopback>(1);
  Communicator communicator(std::make_unique<LoopbackTransport>(shared, 0));
  operations_begun = 0;
  {
    std::vector<std::jthread> threads;
    for (std::uint32_t i = 0; i < kThreads; ++i) {
      threads.emplace_back([&, i] {
        const Communicator mine = communicator.channel(i);
        for (int round = 0; round < kRounds; ++round) mine.start({}, count_and_end);
      });
    }
  }
  EXPECT_EQ(operations_begun, kThreads * kRounds);
}

TEST(Waiting, of_several_threads_ends_for_each_when_its_own_operation_is_over) {
  run_threads(2, [](Communicator& communicator) {
    std::vector<std::jthread> threads;
    for (std::uint32_t i = 0; i < 4; ++i) {
      threads.emplace_back([&, i] {
        const Communicator mine = communicator.channel(i);
        for (int round = 0; round < 200; ++round) mine.engine()->wait(*start_exchange(mine));
      });
    }
  });
}

}  // namespace
}  // namespace tulle::testing
