// Communicators of those that are left.
#include "tulle/comm/shrink.hpp"

#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "comm/loopback.hpp"
#include "tulle/comm/control.hpp"
#include "tulle/comm/sim.hpp"
#include "tulle/comm/threads.hpp"

namespace tulle {
namespace {

const AgreeOptions kWithDeadline{.deadline_seconds = 1};

std::string describe(const std::exception_ptr& error) {
  try {
    if (error) std::rethrow_exception(error);
  } catch (const Error& thrown) {
    return std::string(to_string(thrown.kind())) + ": " + thrown.what();
  }
  return "";
}

// The sum of `mine` over the ranks.
Task<double> sum(Communicator& communicator, double mine) {
  const std::vector<double> values{mine};
  auto request = icombine(communicator, values);
  const std::vector<double> sums = co_await request;
  co_return sums[0];
}

TEST(Shrink, renumbers_the_survivors_in_order_and_they_go_on) {
  SimWorld world({.ranks = 5, .faults = {.deaths = {{.rank = 1, .after_messages = 1}}}});
  int gone_on = 0;
  const auto errors = world.try_run([&](Communicator& communicator) -> Task<> {
    const int rank = communicator.rank();
    communicator.set_default_deadline(2);
    try {
      auto summing = sum(communicator, 1);
      co_await summing;
    } catch (const Error&) {
    }
    auto request = ishrink(communicator, kWithDeadline);
    Communicator survivors = co_await request;
    EXPECT_EQ(survivors.size(), 4);
    EXPECT_EQ(survivors.rank(), rank == 0 ? 0 : rank - 1);
    EXPECT_EQ(survivors.context()->epoch, communicator.context()->epoch + 1);
    EXPECT_EQ(survivors.context()->default_deadline_seconds, 2);
    auto summing_again = sum(survivors, rank);
    EXPECT_EQ(co_await summing_again, 0 + 2 + 3 + 4);
    gone_on += 1;
    std::string text;
    try {
      auto summing = sum(communicator, 1);
      co_await summing;
    } catch (const Error& error) {
      text = to_string(error.kind());
    }
    EXPECT_EQ(text, "broken");
  });
  EXPECT_EQ(gone_on, 4);
  for (const std::size_t rank : {0u, 2u, 3u, 4u}) EXPECT_EQ(describe(errors[rank]), "");
}

// A rank that fails in a split does not know which communicators others have made of the id that it had offered: it
// must not use that again for one of its own.
TEST(Shrink, after_a_death_in_a_split_leaves_nobody_out_who_lives) {
  for (int ranks = 3; ranks <= 7; ++ranks) {
    for (int victim = 0; victim < ranks; ++victim) {
      for (std::uint64_t messages = 0; messages < 12; ++messages) {
        SimWorld world({.ranks = ranks, .seed = 1 + messages, .faults = {.deaths = {{victim, messages, 1e-5}}}});
        const auto errors = world.try_run([](Communicator& communicator) -> Task<> {
          const bool is_end = communicator.rank() == 0 || communicator.rank() + 1 == communicator.size();
          std::optional<Communicator> part;
          try {
            auto splitting = communicator.isplit(is_end ? 0 : 1);
            part = co_await splitting;
          } catch (const Error&) {
          }
          auto shrinking = ishrink(communicator, kWithDeadline);
          co_await shrinking;
        });
        for (int rank = 0; rank < ranks && world.is_dead(victim); ++rank) {
          if (rank == victim) continue;
          ASSERT_EQ(describe(errors[static_cast<std::size_t>(rank)]), "")
              << ranks << " ranks, rank " << victim << " dies after " << messages << " messages";
        }
      }
    }
  }
}

// Nobody has failed, and the others sit in a collective that cannot end: shrinking calls them.
TEST(Shrink, revokes_the_old_communicator_on_all_ranks) {
  SimWorld world({.ranks = 3});
  int called = 0;
  world.run([&](Communicator& communicator) -> Task<> {
    communicator.set_default_deadline(1e6);
    if (communicator.rank() != 0) {
      try {
        auto summing = sum(communicator, 1);
        co_await summing;
      } catch (const Error& error) {
        called += error.kind() == ErrorKind::peer_failed;
      }
    }
    auto request = ishrink(communicator, kWithDeadline);
    Communicator same = co_await request;
    auto summing_again = sum(same, 1);
    EXPECT_EQ(co_await summing_again, 3);
  });
  EXPECT_EQ(called, 2);
  EXPECT_LT(world.elapsed_seconds(), 0.1);
}

TEST(Shrink, again_and_again_down_to_one) {
  SimWorld world({.ranks = 5,
                  .faults = {.deaths = {{.rank = 4, .after_messages = 20},
                                        {.rank = 0, .after_messages = 60},
                                        {.rank = 2, .after_messages = 90},
                                        {.rank = 1, .after_messages = 120}}}});
  bool alone = false;
  world.try_run([&](Communicator& communicator) -> Task<> {
    Communicator current = communicator;
    current.set_default_deadline(0.1);
    while (current.size() > 1) {
      bool failed = false;
      try {
        auto summing = sum(current, 1);
        co_await summing;
      } catch (const Error&) {
        failed = true;
      }
      if (!failed) continue;
      auto request = ishrink(current, {.deadline_seconds = 1, .quorum = Quorum::any});
      Communicator next = co_await request;
      current = next;
    }
    EXPECT_EQ(communicator.rank(), 3);
    auto last = sum(current, 5);
    EXPECT_EQ(co_await last, 5);
    alone = true;
  });
  EXPECT_TRUE(alone);
}

TEST(Shrink, beside_an_agree_of_the_others_is_a_mismatch) {
  SimWorld world({.ranks = 3});
  std::string text;
  const auto errors = world.try_run([&](Communicator& communicator) -> Task<> {
    if (communicator.rank() == 1) {
      auto request = ishrink(communicator, kWithDeadline);
      co_await request;
    } else {
      auto request = iagree(communicator, 1, kWithDeadline);
      co_await request;
    }
  });
  EXPECT_EQ(describe(errors[1]),
            "mismatch: rank 1: ranks disagree on agreement 1: this one calls shrink with Quorum::majority, the others "
            "agree with Quorum::majority");
  EXPECT_EQ(describe(errors[0]), "");
}

// A message that names the new communicator but comes from another membership is dropped by its header.
TEST(Shrink, makes_communicators_that_refuse_other_epochs) {
  testing::LoopbackWorld world(2);
  std::vector<Request<Communicator>> requests;
  for (int rank = 0; rank < 2; ++rank) requests.push_back(ishrink(world[rank], kWithDeadline));
  for (int i = 0; i < 10; ++i) world.settle();
  Communicator left = requests[0].wait(), right = requests[1].wait();
  const auto request = ibarrier(left);
  MessageHeader header;
  header.kind = MessageKind::poison;
  header.context = left.context()->id;
  header.epoch = 0;
  Segments poison = {Buffer::copy_of(std::as_bytes(std::span("late", 4))), Buffer()};
  world.transport(0).sink().deliver(1, {encode_message_head(header, poison), poison, nullptr, 0});
  const auto other = ibarrier(right);
  world.settle();
  EXPECT_TRUE(request.operation().is_finished());
  EXPECT_NO_THROW(Engine::rethrow_error_of(request.operation()));
  header.epoch = 1;
  const auto next = ibarrier(left);
  world.transport(0).sink().deliver(1, {encode_message_head(header, poison), poison, nullptr, 0});
  world.settle();
  EXPECT_THROW(Engine::rethrow_error_of(next.operation()), Error);
}

// A link that one end alone has lost would break whatever has both ends as members.
TEST(Shrink, leaves_out_one_of_two_who_cannot_reach_each_other) {
  SimWorld world({.ranks = 4, .faults = {.rumors = {{.to = 1, .about = 2, .seconds = 0}}}});
  std::vector<std::string> texts(4);
  world.try_run([&](Communicator& communicator) -> Task<> {
    communicator.engine()->transport().charge(0.1);  // the rumor comes first
    auto request = ishrink(communicator, kWithDeadline);
    std::string text;
    try {
      Communicator three = co_await request;
      auto summing = sum(three, 1);
      const double total = co_await summing;
      text = "size " + std::to_string(three.size()) + ", sum " + std::to_string(total);
    } catch (const Error& error) {
      text = to_string(error.kind());
    }
    texts[static_cast<std::size_t>(communicator.rank())] = text;
  });
  const std::string goes_on = "size 3, sum " + std::to_string(3.0);
  EXPECT_EQ(texts, (std::vector<std::string>{goes_on, goes_on, "excluded", goes_on}));
}

// Whoever knows that a survivor is gone tells the others at once, and they can shrink again.
TEST(Shrink, to_a_rank_that_was_lost_meanwhile_gives_a_communicator_that_is_broken_at_birth) {
  int born_broken = 0;
  for (int moment = 0; moment < 200; ++moment) {
    SimWorld world({.ranks = 3, .faults = {.rumors = {{.to = 1, .about = 2, .seconds = 1e-6 * moment}}}});
    std::vector<std::string> texts(3);
    world.try_run([&](Communicator& communicator) -> Task<> {
      auto request = ishrink(communicator, kWithDeadline);
      Communicator next = co_await request;
      try {
        auto summing = sum(next, 1);
        co_await summing;
      } catch (const Error& error) {
        texts[static_cast<std::size_t>(communicator.rank())] = error.what();
      }
    });
    if (texts[1].find("was lost while the survivors agreed") == std::string::npos) continue;
    born_broken += 1;
    EXPECT_NE(texts[0].find("was lost while the survivors agreed"), std::string::npos) << texts[0];
  }
  EXPECT_GT(born_broken, 0);
}

TEST(ShrinkOnThreads, goes_on_after_a_rank_has_fallen_silent) {
  run_threads(3, [](Communicator& communicator) {
    if (communicator.rank() == 0) return;
    Communicator pair = shrink(communicator, {.deadline_seconds = 60, .patience_seconds = 0.2});
    pair.set_default_deadline(20);
    EXPECT_EQ(pair.size(), 2);
    barrier(pair);
    EXPECT_EQ(combine(pair, std::vector<double>{1.0})[0], 2);
  });
}

}  // namespace
}  // namespace tulle
