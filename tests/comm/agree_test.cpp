// Agreement among the living in simulation, on threads, and step by step.
#include "tulle/comm/agree.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <set>
#include <string>

#include "comm/agreement.hpp"
#include "tulle/comm/control.hpp"
#include "tulle/comm/datagram.hpp"
#include "tulle/comm/sim.hpp"
#include "tulle/comm/threads.hpp"

namespace tulle {
namespace {

constexpr double kDeadline = 1;
const AgreeOptions kWithDeadline{.deadline_seconds = kDeadline};

struct Answers {
  std::vector<std::optional<Agreement>> agreements;
  std::vector<std::string> errors;  ///< kind and text; empty where there is none
  double seconds = 0;

  int returned() const {
    return static_cast<int>(std::ranges::count_if(agreements, [](const auto& each) { return each.has_value(); }));
  }
};

std::string describe(const std::exception_ptr& error) {
  try {
    if (error) std::rethrow_exception(error);
  } catch (const Error& thrown) {
    return std::string(to_string(thrown.kind())) + ": " + thrown.what();
  }
  return "";
}

// Every rank gives 100 + its rank.
Answers agree_once(const SimOptions& sim, const std::function<AgreeOptions(int rank)>& options) {
  SimWorld world(sim);
  Answers answers;
  answers.agreements.resize(static_cast<std::size_t>(sim.ranks));
  const auto errors = world.try_run([&](Communicator& communicator) -> Task<> {
    const int rank = communicator.rank();
    auto request = iagree(communicator, static_cast<std::uint64_t>(100 + rank), options(rank));
    const Agreement agreement = co_await request;
    if (!world.is_dead(rank)) answers.agreements[static_cast<std::size_t>(rank)] = agreement;
  });
  for (const auto& error : errors) answers.errors.push_back(describe(error));
  answers.seconds = world.elapsed_seconds();
  return answers;
}

Answers agree_once(const SimOptions& sim, const AgreeOptions& options = kWithDeadline) {
  return agree_once(sim, [&](int) { return options; });
}

TEST(Agree, without_faults_everybody_gets_everybodys_value) {
  for (int ranks = 1; ranks <= 17; ++ranks) {
    const Answers answers = agree_once({.ranks = ranks});
    Agreement expected{.epoch = 1, .survivors = {}, .values = {}};
    for (int rank = 0; rank < ranks; ++rank) {
      expected.survivors.push_back(rank);
      expected.values.push_back(static_cast<std::uint64_t>(100 + rank));
    }
    for (const auto& agreement : answers.agreements) ASSERT_EQ(agreement, expected) << ranks;
    EXPECT_LT(answers.seconds, kDeadline / 100);
  }
}

TEST(Agree, epochs_follow_each_other_in_whatever_order_messages_come) {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    SimWorld world({.ranks = 5, .seed = seed, .faults = {.max_delay_seconds = 0.01}});
    world.run([&](Communicator& communicator) -> Task<> {
      for (std::uint64_t i = 1; i <= 20; ++i) {
        auto request = iagree(communicator, i, kWithDeadline);
        const Agreement agreement = co_await request;
        EXPECT_EQ(agreement.epoch, i);
        EXPECT_EQ(agreement.values, std::vector<std::uint64_t>(5, i));
      }
    });
  }
}

TEST(Agree, goes_on_without_who_died_before) {
  const Answers answers = agree_once({.ranks = 4, .faults = {.deaths = {{.rank = 0, .after_messages = 0}}}});
  for (const int rank : {1, 2, 3}) {
    EXPECT_EQ(answers.agreements[static_cast<std::size_t>(rank)]->survivors, (std::vector<int>{1, 2, 3}));
  }
  EXPECT_TRUE(answers.errors[0].starts_with("peer_failed: the simulation has killed")) << answers.errors[0];
  EXPECT_LT(answers.seconds, kDeadline / 100);
}

// Nobody says so: it is silence that tells.
TEST(Agree, goes_on_without_who_fell_silent) {
  for (const int victim : {0, 1, 3}) {
    const Answers answers = agree_once(
        {.ranks = 4,
         .faults = {.deaths = {{.rank = victim, .after_messages = 0, .told_within_seconds = std::nullopt}}}});
    EXPECT_EQ(answers.returned(), 3) << answers.errors[2];
    EXPECT_LT(answers.seconds, kDeadline);
  }
}

// It answers whatever it is asked, because its engine makes progress, but it has something else to do.
TEST(Agree, goes_on_without_a_rank_that_answers_and_does_not_call) {
  for (const int idle : {0, 1, 3}) {
    SimWorld world({.ranks = 4});
    int agreed = 0;
    world.run([&](Communicator& communicator) -> Task<> {
      if (communicator.rank() == idle) {
        DatagramPort port(communicator);
        auto waiting = port.receive_within(20);
        co_await waiting;
        co_return;
      }
      auto agreeing = iagree(communicator, 7, {.deadline_seconds = 10, .patience_seconds = 0.5});
      const Agreement agreement = co_await agreeing;
      EXPECT_EQ(agreement.survivors.size(), 3u);
      agreed += 1;
    });
    EXPECT_EQ(agreed, 3) << "rank " << idle << " is idle";
  }
}

// Nobody is dead. Who cannot understand another must not take it for dead, or both would decide alone.
TEST(Agree, with_any_never_gives_two_answers_where_bits_flip) {
  int excluded = 0;
  for (std::uint64_t seed = 1; seed <= 150; ++seed) {
    const int ranks = 2 + static_cast<int>(seed % 3);
    SimWorld world({.ranks = ranks, .seed = seed, .faults = {.corrupt = 0.05}});
    std::set<std::vector<int>> answers;
    const auto errors = world.try_run([&](Communicator& communicator) -> Task<> {
      try {
        for (int i = 0; i < 5; ++i) {
          auto meeting = ibarrier(communicator);
          co_await meeting;
        }
      } catch (const Error&) {
      }
      auto agreeing = iagree(communicator, 1, {.deadline_seconds = 1, .quorum = Quorum::any});
      const Agreement agreement = co_await agreeing;
      answers.insert(agreement.survivors);
    });
    ASSERT_LE(answers.size(), 1u) << "seed " << seed;
    excluded += static_cast<int>(std::ranges::count_if(errors, [](const auto& error) { return error != nullptr; }));
  }
  EXPECT_GT(excluded, 5);
}

TEST(Agree, of_fewer_than_a_majority_throws_at_once_and_any_goes_on) {
  const SimOptions one_of_two{.ranks = 2, .faults = {.deaths = {{.rank = 1, .after_messages = 0}}}};
  const Answers majority = agree_once(one_of_two);
  EXPECT_EQ(majority.errors[0],
            "excluded: rank 0: 1 of 2 ranks is left, and agreement 1 takes 2: with Quorum::any it would go on, at the "
            "risk that others do so too");
  EXPECT_LT(majority.seconds, kDeadline / 100);
  const Answers any = agree_once(one_of_two, {.deadline_seconds = kDeadline, .quorum = Quorum::any});
  ASSERT_TRUE(any.agreements[0].has_value()) << any.errors[0];
  EXPECT_EQ(any.agreements[0]->survivors, (std::vector<int>{0}));
}

// Silence is no proof of death, and any has nothing else to go by.
TEST(Agree, with_any_waits_for_the_silent_until_the_deadline) {
  const Answers answers = agree_once(
      {.ranks = 3, .faults = {.deaths = {{.rank = 2, .after_messages = 0, .told_within_seconds = std::nullopt}}}},
      {.deadline_seconds = kDeadline, .quorum = Quorum::any});
  EXPECT_EQ(answers.returned(), 0);
  EXPECT_EQ(answers.errors[0], "excluded: rank 0: agreement 1 was not reached within 1 s: rank 2 has not come");
}

TEST(Agree, leaves_out_a_rank_that_comes_too_late_and_tells_it_so) {
  SimWorld world({.ranks = 4});
  std::vector<std::string> errors;
  for (const auto& error : world.try_run([&](Communicator& communicator) -> Task<> {
         if (communicator.rank() == 1) communicator.engine()->transport().charge(kDeadline / 2);
         auto request = iagree(communicator, 7, kWithDeadline);
         const Agreement agreement = co_await request;
         EXPECT_EQ(agreement.survivors, (std::vector<int>{0, 2, 3}));
       })) {
    errors.push_back(describe(error));
  }
  EXPECT_EQ(errors, (std::vector<std::string>{"",
                                              "excluded: rank 1: the survivors of agreement 1 are ranks 0, 2, 3: this "
                                              "one came too late or was taken for dead",
                                              "", ""}));
}

TEST(Agree, of_a_minority_that_is_cut_off_ends_in_excluded) {
  const Answers answers = agree_once({.ranks = 5, .faults = {.partitions = {{0, 10 * kDeadline, {0, 3}}}}});
  for (const int rank : {1, 2, 4}) {
    EXPECT_EQ(answers.agreements[static_cast<std::size_t>(rank)]->survivors, (std::vector<int>{1, 2, 4}));
  }
  for (const std::size_t rank : {0u, 3u}) {
    EXPECT_NE(answers.errors[rank].find("not reached within 1 s: ranks 1, 2, 4 have not come"), std::string::npos)
        << answers.errors[rank];
  }
}

TEST(Agree, may_be_called_again_by_a_rank_that_could_not_know) {
  SimWorld world({.ranks = 3, .faults = {.partitions = {{0, 1.5 * kDeadline, {2}}}}});
  std::string first;
  const auto errors = world.try_run([&](Communicator& communicator) -> Task<> {
    // The others are patient, so that they wait for the third: all three agree when the network is whole again.
    AgreeOptions options{.deadline_seconds = kDeadline, .patience_seconds = 5 * kDeadline};
    if (communicator.rank() == 2) {
      try {
        auto request = iagree(communicator, 1, options);
        co_await request;
      } catch (const Error& error) {
        first = error.what();
      }
      communicator.engine()->transport().charge(kDeadline);
    }
    options.deadline_seconds = 10 * kDeadline;
    auto request = iagree(communicator, 1, options);
    const Agreement agreement = co_await request;
    EXPECT_EQ(agreement.survivors, (std::vector<int>{0, 1, 2}));
    EXPECT_EQ(agreement.epoch, 1);
  });
  for (const auto& error : errors) EXPECT_EQ(describe(error), "");
  EXPECT_EQ(first, "rank 2: agreement 1 was not reached within 1 s: ranks 0, 1 have not come");
}

TEST(Agree, with_another_quorum_than_the_others_is_a_mismatch) {
  const Answers answers = agree_once({.ranks = 3}, [](int rank) {
    return AgreeOptions{.deadline_seconds = kDeadline, .quorum = rank == 2 ? Quorum::any : Quorum::majority};
  });
  EXPECT_EQ(answers.returned(), 2);
  EXPECT_EQ(answers.errors[2],
            "mismatch: rank 2: ranks disagree on agreement 1: this one calls agree with Quorum::any, the others agree "
            "with Quorum::majority");
}

TEST(Agree, refuses_options_that_make_no_sense_and_a_second_call_meanwhile) {
  SimWorld world({.ranks = 2});
  EXPECT_THROW(iagree(world.communicator(0), 1, {.deadline_seconds = -1}), Error);
  for (const double patience : {-1.0, 1e-6, std::numeric_limits<double>::infinity(), std::nan("")}) {
    EXPECT_THROW(iagree(world.communicator(0), 1, {.patience_seconds = patience}), Error) << patience;
  }
  EXPECT_THROW(iagree(world.communicator(0), 1, {.deadline_seconds = 4e-4}), Error);  // an eighth of it
  std::string second;
  world.run([&](Communicator& communicator) -> Task<> {
    auto request = iagree(communicator, 1, kWithDeadline);
    if (communicator.rank() == 0) {
      try {
        auto other = iagree(communicator, 1, kWithDeadline);
        co_await other;
      } catch (const Error& error) {
        second = error.what();
      }
    }
    co_await request;
  });
  EXPECT_EQ(second, "rank 0: another agreement of this communicator is under way");
}

TEST(AgreeOnThreads, works_where_the_communicator_is_broken_and_with_a_progress_thread) {
  for (const bool has_thread : {false, true}) {
    run_threads(4, [&](Communicator& communicator) {
      if (has_thread) communicator.start_progress_thread();
      if (communicator.rank() == 3) return;  // says nothing any more
      const AgreeOptions options{.deadline_seconds = 60, .patience_seconds = 0.3};
      const Agreement first = agree(communicator, 5, options);
      EXPECT_EQ(first.survivors, (std::vector<int>{0, 1, 2}));
      const Agreement second = agree(communicator, static_cast<std::uint64_t>(communicator.rank()), options);
      EXPECT_EQ(second, (Agreement{.epoch = 2, .survivors = {0, 1, 2}, .values = {0, 1, 2}}));
    });
  }
}

TEST(AgreementPort, is_not_for_programs) {
  SimWorld world({.ranks = 1});
  EXPECT_THROW(DatagramPort(world.communicator(0), kAgreementPort), Error);
  EXPECT_NO_THROW(DatagramPort(world.communicator(0), kAgreementPort - 1));
}

// ---------------------------------------------------------------- step by step

using Kind = AgreementMessage::Kind;

// One node, whose words are kept and whose peers are the test.
struct Alone {
  explicit Alone(int rank, int size)
      : node(rank, size, [this](int to, const AgreementMessage& message) { said.emplace_back(to, message); }) {}
  void hear(int from, AgreementMessage message) { node.take(from, message, 0); }
  AgreementMessage last() const { return said.back().second; }

  std::vector<std::pair<int, AgreementMessage>> said;
  AgreementNode node;
};

Proposal proposal_of(std::uint64_t value) { return {.call = 0, .survivors = {{0, value}, {1, value}, {2, value}}}; }
constexpr Ballot ballot_of(std::uint64_t round, std::uint64_t rank) { return round << 24 | rank; }

TEST(AgreementNode, that_promised_a_later_ballot_accepts_no_earlier_one) {
  Alone one(1, 3);
  one.hear(2, {.kind = Kind::prepare, .number = 1, .ballot = ballot_of(5, 2)});
  EXPECT_EQ(one.last().kind, Kind::promise);
  AgreementMessage accept{.kind = Kind::accept, .number = 1, .ballot = ballot_of(4, 0)};
  accept.proposal = proposal_of(1);
  one.hear(0, accept);
  EXPECT_EQ(one.last().kind, Kind::reject);
  EXPECT_EQ(one.last().other_ballot, ballot_of(5, 2));
  one.hear(0, {.kind = Kind::prepare, .number = 1, .ballot = ballot_of(6, 0)});
  EXPECT_EQ(one.last().kind, Kind::promise);
  EXPECT_FALSE(one.last().proposal.has_value());
}

// The heart of the proof: what may have been decided is proposed again, and of two the one of the later ballot.
TEST(AgreementNode, that_leads_proposes_what_was_accepted_in_the_latest_ballot) {
  Alone zero(0, 3);
  zero.node.join({.value = 9, .patience_seconds = 1}, 0);
  AgreementMessage join{.kind = Kind::join, .number = 1};
  join.value = 1;
  for (const int peer : {1, 2}) zero.hear(peer, join);
  const AgreementMessage prepare = zero.last();
  ASSERT_EQ(prepare.kind, Kind::prepare);
  for (const int peer : {2, 1}) {  // the latest ballot comes first
    AgreementMessage promise{.kind = Kind::promise, .number = 1, .ballot = prepare.ballot};
    promise.other_ballot = ballot_of(0, static_cast<std::uint64_t>(peer));
    promise.proposal = proposal_of(static_cast<std::uint64_t>(10 * peer));
    zero.hear(peer, promise);
  }
  ASSERT_EQ(zero.last().kind, Kind::accept);
  EXPECT_EQ(zero.last().proposal, proposal_of(20));
  zero.hear(1, {.kind = Kind::accepted, .number = 1, .ballot = prepare.ballot});
  EXPECT_EQ(zero.node.decision(), nullptr) << "the third is present and has not answered";
  zero.node.lose(2, 0);
  ASSERT_NE(zero.node.decision(), nullptr);
  EXPECT_EQ(*zero.node.decision(), proposal_of(20));
  EXPECT_EQ(zero.last().kind, Kind::decide);
}

TEST(AgreementNode, tells_the_late_what_was_decided_and_the_very_late_that_it_has_forgotten) {
  Alone one(1, 3);
  for (std::uint32_t number = 1; number <= 20; ++number) {
    AgreementMessage decide{.kind = Kind::decide, .number = number};
    decide.proposal = proposal_of(number);
    one.hear(0, decide);
  }
  AgreementMessage late{.kind = Kind::join, .number = 20};
  late.value = 1;
  one.hear(2, late);
  EXPECT_EQ(one.last().kind, Kind::decide);
  EXPECT_EQ(one.last().proposal, proposal_of(20));
  late.number = 3;
  one.hear(2, late);
  EXPECT_EQ(one.last().kind, Kind::forgotten);
  one.node.join({.value = 1}, 0);
  EXPECT_TRUE(one.node.is_lost());
}

TEST(AgreementMessage, comes_out_as_it_went_in_and_is_refused_where_it_is_none) {
  AgreementMessage message{.kind = Kind::promise, .number = 3, .ballot = 4, .other_ballot = 5, .call = 1};
  message.value = 77;
  message.gone = {1, 2};
  message.proposal = proposal_of(8);
  const Segments segments = encode_agreement_message(message);
  EXPECT_EQ(decode_agreement_message(segments, 3), message);
  const auto refuses = [&](std::size_t at, std::uint8_t value, std::size_t bytes = 80, int size = 3) {
    Segments changed = {Buffer::copy_of(segments[0].bytes().first(bytes))};
    if (at < bytes) changed[0].mutable_data()[at] = static_cast<std::byte>(value);
    try {
      decode_agreement_message(changed, size);
      return false;
    } catch (const Error& error) {
      return error.kind() == ErrorKind::bad_message;
    }
  };
  EXPECT_FALSE(refuses(4, 9));
  EXPECT_TRUE(refuses(0, 0));          // kind
  EXPECT_TRUE(refuses(0, 9));          // kind
  EXPECT_TRUE(refuses(1, 4));          // flags
  EXPECT_TRUE(refuses(1, 1));          // a proposal that the flags deny
  EXPECT_TRUE(refuses(56, 0));         // ranks do not increase
  EXPECT_TRUE(refuses(99, 0, 79));     // cut off
  EXPECT_TRUE(refuses(99, 0, 35));     // cut off
  EXPECT_TRUE(refuses(99, 0, 44));     // no survivors
  EXPECT_TRUE(refuses(99, 0, 80, 2));  // a rank that is none
  EXPECT_TRUE(refuses(32, 200));       // more who are gone than bytes
  EXPECT_TRUE(refuses(40, 1));         // they do not increase
  EXPECT_THROW(decode_agreement_message({}, 3), Error);
}

}  // namespace
}  // namespace tulle
