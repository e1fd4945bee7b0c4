// What rows are chosen by on transports whose defaults differ.
#include "collectives/choice_basis.hpp"

#include <gtest/gtest.h>

namespace tulle {
namespace {

// Eight ranks, of which only what rows are chosen by is asked.
class Quiet : public Transport {
 public:
  Quiet(double alpha_seconds, int ranks_of_a_node) : alpha_seconds_(alpha_seconds), ranks_of_a_node_(ranks_of_a_node) {}
  std::string name() const override { return "quiet"; }
  int rank() const override { return 0; }
  int size() const override { return 8; }
  void attach(MessageSink&) override {}
  void send(int, Message) override {}
  bool poll() override { return false; }
  double now() const override { return 0; }
  int node_of(int rank) const override { return rank / ranks_of_a_node_; }
  Profile default_profile() const override { return {.alpha_seconds = alpha_seconds_}; }

 private:
  double alpha_seconds_;
  int ranks_of_a_node_;
};

TEST(ChoiceBasis, is_that_of_the_transport_unless_the_choice_shall_be_the_same_on_all) {
  const Communicator shared(std::make_unique<Quiet>(1e-7, 8)), wired(std::make_unique<Quiet>(1e-4, 2));
  const CostInput on_shared = choice_basis(shared, ChoiceBy::profile),
                  on_wired = choice_basis(wired, ChoiceBy::profile);
  EXPECT_EQ(on_shared.profile.alpha_seconds, 1e-7);
  EXPECT_EQ(on_wired.profile.alpha_seconds, 1e-4);
  EXPECT_EQ(on_wired.nodes, 4);
  const CostInput one = choice_basis(shared, choice_by(/*reproducible=*/true));
  const CostInput other = choice_basis(wired, choice_by(/*reproducible=*/true));
  EXPECT_EQ(one.profile, other.profile);
  EXPECT_EQ(one.nodes, other.nodes);
  EXPECT_EQ(one.ranks, 8);
}

TEST(ChoiceBasis, is_the_profile_that_was_given_in_every_case) {
  Communicator communicator(std::make_unique<Quiet>(1e-7, 8));
  const Profile given{.alpha_seconds = 5e-5};
  communicator.set_profile(given);
  EXPECT_EQ(choice_basis(communicator, ChoiceBy::given_profile).profile, given);
  EXPECT_EQ(choice_basis(communicator.channel(3), ChoiceBy::given_profile).profile, given);
}

}  // namespace
}  // namespace tulle
