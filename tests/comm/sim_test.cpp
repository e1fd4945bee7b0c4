// The engine and the simulator below any collective: messages, clocks, splits, deadlines.
#include "tulle/comm/sim.hpp"

#include <gtest/gtest.h>

#include <string>

namespace tulle {
namespace {

CallSignature signature_for(std::uint64_t dimension) {
  CallSignature signature;
  signature.dimension = dimension;
  return signature;
}

Segments text(std::string_view content) {
  Segments segments;
  segments.push_back(Buffer::copy_of(std::as_bytes(std::span(content))));
  return segments;
}

std::string text_of(const Incoming& message) {
  const auto bytes = message.segments.at(0).bytes();
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

using Body = std::function<Task<>(Operation&)>;

// Runs `body` as an operation of its own on every rank that `takes_part`.
Program operation_of(
    const Body& body, std::function<bool(int)> takes_part = [](int) { return true; }, double deadline_seconds = 1) {
  return [=, &body](Communicator& communicator) -> Task<> {
    if (!takes_part(communicator.rank())) co_return;
    auto operation = communicator.start({.signature = signature_for(1), .deadline_seconds = deadline_seconds},
                                        [&](Operation& started) { return body(started); });
    co_await Engine::Finished(operation);
  };
}

std::string error_of(const std::exception_ptr& error, ErrorKind kind) {
  try {
    if (error) std::rethrow_exception(error);
  } catch (const Error& thrown) {
    EXPECT_EQ(thrown.kind(), kind) << thrown.what();
    return thrown.what();
  }
  return "no error";
}

TEST(Simulation, takes_alpha_plus_beta_times_bytes_for_a_message) {
  SimWorld world({.profile = {.alpha_seconds = 100, .beta_seconds_per_byte = 1}});
  const Body body = [](Operation& operation) -> Task<> {
    if (operation.rank() == 0) operation.send(1, 0, text("0123456789"), 10);
    if (operation.rank() == 1) {
      const Incoming message = co_await operation.receive(0, 0);
      EXPECT_EQ(text_of(message), "0123456789");
    }
  };
  world.run(operation_of(
      body, [](int) { return true; }, 1000));
  EXPECT_EQ(world.elapsed_seconds(), 100 + 48 + 8 + 10);  // header, one length, ten bytes
  EXPECT_EQ(world.totals().bytes, 66u);
}

TEST(Simulation, gives_the_same_run_for_the_same_seed) {
  const auto order_of_arrival = [](std::uint64_t seed) {
    SimWorld world({.ranks = 9, .seed = seed, .faults = {.max_delay_seconds = 1}});
    std::string order;
    const Body body = [&](Operation& operation) -> Task<> {
      if (operation.rank() != 0) operation.send(0, 0, text(std::to_string(operation.rank())), 0);
      for (int i = 1; operation.rank() == 0 && i < operation.size(); ++i) {
        const Incoming message = co_await operation.receive_next(0);
        order += text_of(message);
      }
    };
    world.run(operation_of(
        body, [](int) { return true; }, 10));
    return order;
  };
  EXPECT_EQ(order_of_arrival(1), order_of_arrival(1));
  EXPECT_NE(order_of_arrival(1), order_of_arrival(2));
}

TEST(Operation, receives_steps_in_the_order_it_asks_for_them) {
  SimWorld world({.ranks = 2});
  const Body body = [](Operation& operation) -> Task<> {
    const int peer = 1 - operation.rank();
    for (Step step = 0; step < 5; ++step) operation.send(peer, step, text(std::to_string(step)), 0);
    for (Step step = 5; step-- > 0;) {
      const Incoming message = co_await operation.receive(peer, step);
      EXPECT_EQ(text_of(message), std::to_string(step));
    }
  };
  world.run(operation_of(body));
}

TEST(Operation, keeps_messages_of_operations_that_are_not_started_yet) {
  SimWorld world({.ranks = 2});
  const Body body = [](Operation& operation) -> Task<> {
    if (operation.rank() == 0) operation.send(1, 0, text("early"), 0);
    if (operation.rank() == 1) {
      const Incoming message = co_await operation.receive(0, 0);
      EXPECT_EQ(text_of(message), "early");
    }
  };
  const auto is_first = [](int rank) { return rank == 0; };
  world.run(operation_of(body, is_first));
  while (world.communicator(0).engine()->progress() && world.totals().messages == 0) {
  }
  world.run(operation_of(body, [](int rank) { return rank == 1; }));
}

TEST(Operation, past_its_deadline_names_the_step_and_the_peer) {
  SimWorld world({.ranks = 3});
  const Body body = [](Operation& operation) -> Task<> { co_await operation.receive(2, 7); };
  const auto errors = world.try_run(operation_of(
      body, [](int rank) { return rank < 2; }, 0.5));
  const std::string message = error_of(errors[0], ErrorKind::deadline);
  EXPECT_NE(message.find("rank 0"), std::string::npos) << message;
  EXPECT_NE(message.find("within 0.5 s"), std::string::npos) << message;
  EXPECT_NE(message.find("in step 7 for rank 2"), std::string::npos) << message;
}

TEST(Operation, that_fails_on_one_rank_fails_on_all_and_breaks_the_communicator) {
  SimWorld world({.ranks = 4});
  const Body body = [](Operation& operation) -> Task<> {
    if (operation.rank() == 2) throw Error(ErrorKind::bad_input, "something is wrong here");
    co_await operation.receive_next(0);
  };
  const auto errors = world.try_run(operation_of(body));
  EXPECT_NE(error_of(errors[2], ErrorKind::bad_input).find("rank 2: something is wrong"), std::string::npos);
  for (const int rank : {0, 1, 3}) {
    const std::string message = error_of(errors[static_cast<std::size_t>(rank)], ErrorKind::peer_failed);
    EXPECT_NE(message.find("rank 2 failed: rank 2: something is wrong here"), std::string::npos) << message;
  }
  EXPECT_LT(world.elapsed_seconds(), 0.1);  // told at once, not by the deadline
  for (const auto& error : world.try_run(operation_of(body))) error_of(error, ErrorKind::broken);
}

TEST(Operation, with_another_fingerprint_shows_both_sides) {
  SimWorld world({.ranks = 2});
  const Program program = [](Communicator& communicator) -> Task<> {
    const auto dimension = static_cast<std::uint64_t>(communicator.rank() == 0 ? 1000 : 2000);
    const Body body = [](Operation& operation) -> Task<> {
      operation.send(1 - operation.rank(), 0, {}, 0);
      co_await operation.receive(1 - operation.rank(), 0);
    };
    auto operation = communicator.start({.signature = signature_for(dimension), .deadline_seconds = 1},
                                        [&](Operation& started) { return body(started); });
    co_await Engine::Finished(operation);
  };
  for (const auto& error : world.try_run(program)) {
    try {
      std::rethrow_exception(error);
    } catch (const Error& thrown) {
      const std::string message = thrown.what();
      EXPECT_NE(message.find("(dimension)"), std::string::npos) << message;
      EXPECT_NE(message.find("of 1000 f32"), std::string::npos) << message;
      EXPECT_NE(message.find("of 2000 f32"), std::string::npos) << message;
    }
  }
  EXPECT_LT(world.elapsed_seconds(), 0.1);
}

TEST(Operation, that_is_sent_what_it_never_asks_for_fails) {
  SimWorld world({.ranks = 2});
  const Body body = [](Operation& operation) -> Task<> {
    operation.send(1 - operation.rank(), 0, {}, 0);
    operation.send(1 - operation.rank(), 1, {}, 0);
    co_await operation.receive(1 - operation.rank(), 1);
    co_await operation.receive(1 - operation.rank(), 0);
    if (operation.rank() == 0) operation.send(1, 2, {}, 0);
    if (operation.rank() == 0) operation.send(1, 3, {}, 0);
    if (operation.rank() == 1) co_await operation.receive(0, 3);
  };
  const auto errors = world.try_run(operation_of(body));
  EXPECT_NE(error_of(errors[1], ErrorKind::bad_message).find("step 2 that nobody asked for"), std::string::npos);
}

TEST(Split, groups_by_color_and_orders_by_key) {
  for (const int ranks : {1, 2, 5, 8, 13}) {
    SimWorld world({.ranks = ranks});
    world.run([ranks](Communicator& communicator) -> Task<> {
      const int rank = communicator.rank();
      auto request = communicator.isplit(rank % 3, -rank);
      Communicator part = co_await request;
      const int members = (ranks - rank % 3 + 2) / 3;
      EXPECT_EQ(part.size(), members);
      EXPECT_EQ(part.rank(), members - 1 - rank / 3);
      auto again = part.isplit(0);
      Communicator same = co_await again;
      EXPECT_EQ(same.size(), members);
      EXPECT_EQ(same.rank(), part.rank());
    });
  }
}

TEST(Split, in_flight_twice_gives_two_communicators) {
  SimWorld world({.ranks = 4});
  const Body exchange = [](Operation& operation) -> Task<> {
    const int peer = operation.size() - 1 - operation.rank();
    if (peer == operation.rank()) co_return;
    operation.send(peer, 0, text(std::to_string(operation.size())), 0);
    const Incoming message = co_await operation.receive(peer, 0);
    EXPECT_EQ(text_of(message), std::to_string(operation.size()));
  };
  world.run([&](Communicator& communicator) -> Task<> {
    auto first = communicator.isplit(communicator.rank() / 2);
    auto second = communicator.isplit(0);
    Communicator halves = co_await first;
    Communicator whole = co_await second;
    EXPECT_NE(halves.context()->id, whole.context()->id);
    for (const Communicator& part : {halves, whole}) {
      auto operation = part.start({.signature = signature_for(1), .deadline_seconds = 1},
                                  [&](Operation& started) { return exchange(started); });
      co_await Engine::Finished(operation);
    }
  });
}

TEST(Split, parts_fail_by_themselves) {
  SimWorld world({.ranks = 4});
  const Body failing = [](Operation& operation) -> Task<> {
    if (operation.rank() == 0) throw Error(ErrorKind::bad_input, "only the even ones");
    co_await operation.receive(0, 0);
  };
  const Body fine = [](Operation& operation) -> Task<> {
    operation.send(1 - operation.rank(), 0, {}, 0);
    co_await operation.receive(1 - operation.rank(), 0);
  };
  const auto errors = world.try_run([&](Communicator& communicator) -> Task<> {
    auto request = communicator.isplit(communicator.rank() % 2);
    Communicator part = co_await request;
    const Body& body = communicator.rank() % 2 == 0 ? failing : fine;
    auto operation = part.start({.signature = signature_for(1), .deadline_seconds = 1},
                                [&](Operation& started) { return body(started); });
    co_await Engine::Finished(operation);
  });
  EXPECT_TRUE(errors[0] && errors[2]);
  EXPECT_FALSE(errors[1] || errors[3]);
}

}  // namespace
}  // namespace tulle
