// One rank's part in the agreements of a communicator: a state machine without I/O.
//
// How it works. Agreements are numbered. The *members* of number n are the survivors of n - 1; of the first, everybody.
// A rank that calls *joins*: it tells all members its value. The *leader* is the lowest member that is not *gone*, by
// the word of the transport, or *suspected*, because it was silent for too long. When all who are present have joined,
// the leader opens a *ballot*, which is a number that nobody else uses:
//
//   prepare   members promise to take part in no earlier ballot, and say what they have accepted last;
//   accept    the leader proposes what was accepted in the latest ballot that it heard of, and where there is nothing,
//             {who is present, what each of them gave}; members accept unless they have promised a later ballot. Of two
//             who cannot reach each other one is left out, or what follows would break at once. Whoever is said to be
//             gone is asked once more before, in a ballot of its own: who is dead does not answer, and so no rank that
//             lives is left out for knowing of a death first;
//   decide    the leader tells everybody. Who hears it passes it on once, so that the leader may die.
//
// Both rounds need the answers of all who are present, and of a *quorum*. Where the leader falls silent the next one
// opens a later ballot, and goes on with it also when it hears of the leader: that may answer and never call. Where two
// ranks take themselves for the leader, the later ballot wins, and the other one waits.
//
// Why two ranks cannot decide differently (this is Paxos, with members that change by what it decides):
// 1. Whoever takes part in number n knows the decision of n - 1, so that all have the same members and the same idea of
//    a quorum, by induction.
// 2. A decision was accepted by a quorum in some ballot b. Let b' be the first later ballot in which something is
//    proposed. Its leader has promises of a quorum. Any two majorities share a rank; that rank accepted in b before it
//    promised b', since afterwards it would have refused b. So the leader of b' heard of b, and of no proposal
//    accepted later than b, and it proposes the same. By induction all ballots after b propose what b decided.
// 3. A ballot has one proposal, because it has one leader, who proposes once.
// With Quorum::any the two quorums share a rank for another reason: each holds all who are not gone. That is true only
// while nobody is taken for gone who lives, and therefore nobody is suspected there, and nobody decides while somebody
// is gone for another reason than death.
//
// Messages may be lost, late, doubled and out of order. A member that waits says again what it has said.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "comm/agreement_message.hpp"
#include "tulle/comm/agree.hpp"

namespace tulle {

class AgreementNode {
 public:
  using Send = std::function<void(int to, const AgreementMessage& message)>;
  struct Call {
    std::uint8_t kind = 0;  ///< the function and its quorum, as a number that ranks compare
    std::uint64_t value = 0;
    Quorum quorum = Quorum::majority;
    double patience_seconds = 1;
  };

  AgreementNode(int rank, int size, Send send);

  // ---------------------------------------------------------------- the caller of agree()

  /// The agreement that this rank's next call is about.
  std::uint32_t number_of_call() const { return number_of_call_; }
  bool is_in_call() const { return call_.has_value(); }
  /// Begins the call, or begins it again. REQUIRES: not in one.
  void join(const Call& call, double now);
  /// The call is over here; this rank still answers.
  void leave();
  /// What is decided about the call; null while nothing is. REQUIRES: not is_lost().
  const Proposal* decision() const;
  /// The next call is about the next agreement.
  void go_on() { number_of_call_ += 1; }
  /// True where no answer will ever come: this rank was left out before, or the others have forgotten.
  bool is_lost() const;
  /// True where fewer members than a quorum are left, or where the quorum has to hold all the living and a member may
  /// live that is not understood. REQUIRES: in a call.
  bool is_hopeless() const;
  /// Looks at the clock; to be called at next_tick(). REQUIRES: in a call.
  void tick(double now);
  double next_tick() const { return next_tick_; }

  std::string describe_waiting() const;
  std::string describe_members_left() const;
  std::string describe_doubted() const;

  // ---------------------------------------------------------------- what arrives, whether in a call or not

  void take(int from, const AgreementMessage& message, double now);
  /// The transport says that it is dead.
  void lose(int peer, double now);
  /// What it sends is not understood, so that it cannot be reached any more; but it may live.
  void doubt(int peer, double now);
  bool is_gone(int peer) const { return gone_.contains(peer); }
  bool is_doubted(int peer) const { return doubted_.contains(peer); }

 private:
  using Kind = AgreementMessage::Kind;
  enum class Phase { idle, preparing, accepting };

  bool takes_part() const { return call_ && number_of_call_ == number_ && is_member(rank_); }
  bool is_member(int rank) const;
  bool is_present(int rank) const { return !gone_.contains(rank) && !suspected_.contains(rank); }
  bool has_joined(int rank) const;
  bool all_present(const std::function<bool(int)>& holds) const;
  int leader() const;
  std::size_t quorum() const;
  std::size_t joined_count() const;
  bool has_answers() const;

  void answer_about_the_past(int from, const AgreementMessage& message);
  void take_part(int from, const AgreementMessage& message, double now);
  void answer_prepare(int from, const AgreementMessage& message);
  void answer_accept(int from, const AgreementMessage& message);
  void take_promise(int from, const AgreementMessage& message);
  void take_reject(const AgreementMessage& message, double now);

  void advance(double now);
  void open_ballot(double now);
  void propose(double now);
  void back_off(double now);
  void decide(const Proposal& proposal, double now);
  void suspect_who_is_silent();
  void repeat();
  Proposal make_proposal() const;
  std::vector<int> who_is_here() const;
  bool has_lost(int rank, int other) const;
  bool learns_of_losses();
  std::vector<int> who_reach_each_other() const;
  AgreementMessage message(Kind kind) const;
  AgreementMessage join_message() const;
  void broadcast(const AgreementMessage& message) const;

  const int rank_;
  Send send_;

  std::uint32_t number_ = 1;          ///< of the first agreement that is not decided
  std::uint32_t number_of_call_ = 1;  ///< at most number_
  bool is_forgotten_ = false;
  std::vector<int> members_;
  std::map<std::uint32_t, Proposal> decided_;  ///< the last few
  std::set<int> gone_;
  std::set<int> doubted_;  ///< of those that are gone
  std::set<int> suspected_;
  std::vector<std::pair<int, AgreementMessage>> later_;  ///< of agreements that are not begun here

  // Of the agreement number_.
  struct Joined {
    std::uint8_t call;
    std::uint64_t value;
    std::vector<std::uint32_t> gone;
  };
  std::map<int, Joined> joined_;
  Ballot promised_ = 0;
  Ballot accepted_ballot_ = 0;
  std::optional<Proposal> accepted_;
  // As the leader.
  Phase phase_ = Phase::idle;
  std::uint64_t round_ = 0;  ///< the highest that was heard of
  Ballot ballot_ = 0;
  std::set<int> answers_;
  std::set<std::pair<int, int>> losses_;  ///< who has lost whom, as known when the ballot was opened
  Ballot latest_ballot_ = 0;              ///< of what was accepted, as the promises say
  std::optional<Proposal> proposal_;

  // Of the call.
  std::optional<Call> call_;
  double waits_since_ = 0;
  double next_tick_ = 0;
  double next_repeat_ = 0;
  double backs_off_until_ = 0;
};

}  // namespace tulle
