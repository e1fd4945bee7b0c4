// Ranks as threads: what the others see of one whose function throws, returns early or never begins.
#include "tulle/comm/threads.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <stdexcept>

#include "comm/loopback.hpp"
#include "tulle/comm/agree.hpp"
#include "tulle/comm/control.hpp"
#include "tulle/comm/datagram.hpp"
#include "tulle/comm/shrink.hpp"

namespace tulle::testing {
namespace {

// Far longer than any of these tests takes: who waits for it is seen by the test's time limit.
constexpr double kFarAway = 1e6;

// What each rank threw, while `body` runs on `ranks` threads; run_threads() rethrows into `cause`.
struct Outcome {
  std::vector<std::string> texts;
  std::string cause;
};

Outcome outcome_of(int ranks, const std::function<void(Communicator&)>& body) {
  Outcome outcome{.texts = std::vector<std::string>(static_cast<std::size_t>(ranks)), .cause = ""};
  try {
    run_threads(ranks, [&](Communicator& communicator) {
      communicator.set_default_deadline(kFarAway);
      try {
        body(communicator);
      } catch (const std::exception& error) {
        outcome.texts[static_cast<std::size_t>(communicator.rank())] = error.what();
        throw;
      }
    });
  } catch (const std::exception& error) {
    outcome.cause = error.what();
  } catch (...) {
    outcome.cause = "no std::exception";
  }
  return outcome;
}

bool has(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

TEST(Threads, a_rank_that_throws_is_heard_at_once_and_its_exception_is_rethrown) {
  for (const bool helped : {false, true}) {
    const Outcome outcome = outcome_of(3, [&](Communicator& communicator) {
      if (helped) communicator.start_progress_thread();
      if (communicator.rank() == 1) throw std::runtime_error("the disk is full");
      barrier(communicator);
    });
    EXPECT_EQ(outcome.cause, "the disk is full");
    for (const std::size_t rank : {0, 2}) {
      EXPECT_TRUE(has(outcome.texts[rank], "rank 1 is lost: its function threw: the disk is full"))
          << outcome.texts[rank];
    }
  }
}

TEST(Threads, what_is_thrown_ends_also_who_waits_on_a_part_of_the_ranks) {
  const Outcome outcome = outcome_of(3, [](Communicator& communicator) {
    Communicator part = communicator.split(0, -communicator.rank());
    if (communicator.rank() == 2) throw 7;
    barrier(part);
  });
  EXPECT_EQ(outcome.cause, "no std::exception");
  for (const std::size_t rank : {0, 1}) {
    EXPECT_TRUE(has(outcome.texts[rank], "something that is no std::exception")) << outcome.texts[rank];
  }
}

TEST(Threads, an_error_of_the_library_counts_before_its_echoes_of_lower_ranks) {
  const Outcome outcome = outcome_of(4, [](Communicator& communicator) {
    if (communicator.rank() == 3) throw Error(ErrorKind::bad_input, "no such file").at_rank(3);
    barrier(communicator);
  });
  EXPECT_EQ(outcome.cause, "rank 3: no such file");
}

TEST(Threads, who_waits_for_a_rank_that_has_returned_is_told_which) {
  for (const bool helped : {false, true}) {
    const Outcome outcome = outcome_of(3, [&](Communicator& communicator) {
      if (helped) communicator.start_progress_thread();
      barrier(communicator);
      if (communicator.rank() != 1) barrier(communicator);
    });
    EXPECT_TRUE(has(outcome.cause, "rank 1, which left the job")) << outcome.cause;
    EXPECT_EQ(outcome.texts[1], "");
    for (const std::size_t rank : {0, 2}) {
      EXPECT_TRUE(has(outcome.texts[rank], "rank 1, which left the job")) << outcome.texts[rank];
    }
  }
}

TEST(Threads, who_needs_nothing_of_a_rank_that_has_returned_goes_on) {
  run_threads(3, [](Communicator& communicator) {
    communicator.set_default_deadline(kFarAway);
    Communicator pair = communicator.split(communicator.rank() == 1 ? 1 : 0);
    if (communicator.rank() == 1) return;
    for (int i = 0; i < 10; ++i) barrier(pair);
  });
}

TEST(Threads, of_no_rank_are_refused) {
  EXPECT_EQ(error_of([] { run_threads(0, [](Communicator&) {}); }).first, ErrorKind::bad_input);
  EXPECT_TRUE(has(error_of([] { run_threads(-1, [](Communicator&) {}); }).second, "run_threads(-1)"));
}

// ---------------------------------------------------------------- the last words of a rank

Segments one(std::string_view text) {
  Segments segments;
  segments.push_back(Buffer::copy_of(std::as_bytes(std::span(text))));
  return segments;
}

TEST(Threads, what_a_rank_sent_last_arrives_also_where_it_has_a_progress_thread) {
  for (int i = 0; i < 100; ++i) {
    run_threads(2, [](Communicator& communicator) {
      DatagramPort port(communicator);
      if (communicator.rank() == 1) {
        communicator.start_progress_thread();
        for (int letter = 0; letter < 3; ++letter) port.send(0, one("bye"));
        return;
      }
      for (int letter = 0; letter < 3; ++letter) ASSERT_TRUE(port.receive_for(kFarAway).has_value());
    });
  }
}

TEST(Threads, what_a_rank_broke_last_is_heard_also_where_it_has_a_progress_thread) {
  for (int i = 0; i < 100; ++i) {
    const Outcome outcome = outcome_of(2, [](Communicator& communicator) {
      if (communicator.rank() == 0) return barrier(communicator);
      communicator.start_progress_thread();
      break_communicator(communicator, Error(ErrorKind::bad_input, "no such file"));
    });
    EXPECT_TRUE(has(outcome.texts[0], "rank 1 failed: rank 1: no such file")) << outcome.texts[0];
  }
}

TEST(Threads, ports_are_told_of_a_rank_that_ended_in_order_before_and_after_they_open) {
  run_threads(2, [](Communicator& communicator) {
    if (communicator.rank() == 1) return;
    communicator.set_peer_policy(PeerPolicy::tells);
    for (const std::uint32_t number : {0, 1}) {
      DatagramPort port(communicator, number);
      const std::optional<Datagram> news = port.receive_for(kFarAway);
      ASSERT_TRUE(news && news->failure);
      EXPECT_EQ(news->from, 1);
      EXPECT_TRUE(has(news->failure->what(), "rank 1 left the job")) << news->failure->what();
    }
  });
}

// ---------------------------------------------------------------- deadlines

TEST(Deadlines, that_are_no_time_are_refused_where_they_are_used) {
  run_threads(1, [](Communicator& communicator) {
    for (const double seconds : {-1.0, std::nan(""), -std::numeric_limits<double>::infinity()}) {
      const auto [kind, text] = error_of([&] {
        (void)communicator.start({.signature = {}, .deadline_seconds = seconds},
                                 [](Operation&) -> Task<> { co_return; });
      });
      EXPECT_EQ(kind, ErrorKind::bad_input) << seconds;
      EXPECT_TRUE(has(text, "the deadline of a call is ")) << text;
      EXPECT_EQ(error_of([&] { agree(communicator, 0, {.deadline_seconds = seconds}); }).first, ErrorKind::bad_input);
      EXPECT_EQ(error_of([&] { shrink(communicator, {.deadline_seconds = seconds}); }).first, ErrorKind::bad_input);
      EXPECT_TRUE(
          has(error_of([&] { communicator.set_default_deadline(seconds); }).second, "the default deadline is "));
    }
    communicator.set_default_deadline(std::numeric_limits<double>::infinity());
    barrier(communicator);
  });
}

}  // namespace
}  // namespace tulle::testing
