#include "collectives/choice_basis.hpp"

namespace tulle {
namespace {

// Gigabit Ethernet between ranks that have a node each. On a faster network exchanges are a small part of a step
// whatever row makes them; rows chosen for shared memory would cost far more on a slow one.
Profile everywhere() {
  Profile profile;
  profile.alpha_seconds = profile.node_alpha_seconds = 30e-6;
  profile.beta_seconds_per_byte = profile.node_beta_seconds_per_byte = 8.5e-9;
  return profile;
}

bool is_given(const Communicator& communicator) {
  const Transport& transport = communicator.engine()->transport();
  // A simulation's own profile is the one that it was given, unless it was given none.
  return communicator.profile() != (transport.name() == "sim" ? Profile() : transport.default_profile());
}

}  // namespace

CostInput choice_basis(const Communicator& communicator, ChoiceBy by) {
  const bool is_guess = by == ChoiceBy::given_profile && !is_given(communicator);
  CostInput input;
  input.ranks = communicator.size();
  input.nodes = is_guess ? input.ranks : communicator.node_count();
  input.profile = profile_of_rank(is_guess ? everywhere() : communicator.profile(), input.ranks, input.nodes);
  return input;
}

}  // namespace tulle
