#include "comm/agreement.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cassert>
#include <numeric>

namespace tulle {
namespace {

// The proposer's rank is below 2^24, like all ranks.
constexpr int kRankBits = 24;
// A rank that is further behind than this has been left out long ago.
constexpr std::size_t kMostDecided = 8;
// Per member, of agreements that are not begun here. What does not fit is said again.
constexpr std::size_t kMostLater = 4;

Ballot make_ballot(std::uint64_t round, int rank) { return round << kRankBits | static_cast<std::uint64_t>(rank); }
std::uint64_t round_of(Ballot ballot) { return ballot >> kRankBits; }

}  // namespace

AgreementNode::AgreementNode(int rank, int size, Send send)
    : rank_(rank), send_(std::move(send)), members_(static_cast<std::size_t>(size)) {
  std::iota(members_.begin(), members_.end(), 0);
}

// ---------------------------------------------------------------- who is who

bool AgreementNode::is_member(int rank) const { return std::ranges::binary_search(members_, rank); }

bool AgreementNode::has_joined(int rank) const {
  const auto found = joined_.find(rank);
  return found != joined_.end() && found->second.call == call_->kind;
}

bool AgreementNode::all_present(const std::function<bool(int)>& holds) const {
  return std::ranges::all_of(members_, [&](int member) { return !is_present(member) || holds(member); });
}

int AgreementNode::leader() const {
  return *std::ranges::find_if(members_, [this](int member) { return member == rank_ || is_present(member); });
}

std::size_t AgreementNode::quorum() const { return call_->quorum == Quorum::any ? 1 : members_.size() / 2 + 1; }

std::size_t AgreementNode::joined_count() const {
  return static_cast<std::size_t>(std::ranges::count_if(members_, [this](int member) { return has_joined(member); }));
}

bool AgreementNode::has_answers() const {
  return answers_.size() >= quorum() && all_present([this](int member) { return answers_.contains(member); });
}

bool AgreementNode::is_hopeless() const {
  const auto is_doubted = [this](int member) { return doubted_.contains(member); };
  if (call_->quorum == Quorum::any && std::ranges::any_of(members_, is_doubted)) return number_of_call_ == number_;
  const auto left = std::ranges::count_if(members_, [this](int member) { return !gone_.contains(member); });
  return number_of_call_ == number_ && static_cast<std::size_t>(left) < quorum();
}

// ---------------------------------------------------------------- the caller

void AgreementNode::join(const Call& call, double now) {
  assert(!call_);
  call_ = call;
  waits_since_ = now;
  next_tick_ = now;
  next_repeat_ = now;  // which says it for the first time
  backs_off_until_ = now;
  suspected_.clear();
  if (!takes_part()) return;
  joined_[rank_] = {call.kind, call.value, {}};
  tick(now);
}

void AgreementNode::leave() {
  call_.reset();
  phase_ = Phase::idle;
}

const Proposal* AgreementNode::decision() const {
  const auto found = decided_.find(number_of_call_);
  return found == decided_.end() ? nullptr : &found->second;
}

bool AgreementNode::is_lost() const {
  if (decision() != nullptr) return false;
  return is_forgotten_ || number_of_call_ < number_ || !is_member(rank_);
}

void AgreementNode::tick(double now) {
  constexpr double kTicks = 16, kRepeats = 4;  // in the time of the patience
  next_tick_ = now + call_->patience_seconds / kTicks;
  if (!takes_part()) return;
  if (now >= next_repeat_) {
    next_repeat_ = now + call_->patience_seconds / kRepeats;
    repeat();
  }
  // A leader may itself have to wait for somebody, so that the others wait longer for it.
  if (now - waits_since_ >= (leader() == rank_ ? 1 : 2) * call_->patience_seconds) {
    waits_since_ = now;
    suspect_who_is_silent();
  }
  advance(now);
}

void AgreementNode::repeat() {
  for (const int member : members_) {
    if (member == rank_ || gone_.contains(member)) continue;
    send_(member, join_message());
    if (phase_ == Phase::idle || answers_.contains(member)) continue;
    send_(member, message(phase_ == Phase::preparing ? Kind::prepare : Kind::accept));
  }
}

void AgreementNode::suspect_who_is_silent() {
  if (call_->quorum == Quorum::any) return;
  const int leads = leader();
  const auto is_silent = [&](int member) {
    if (leads != rank_) return member == leads || (member < rank_ && !has_joined(member));
    if (phase_ == Phase::idle) return joined_count() >= quorum() && !has_joined(member);
    return answers_.size() >= quorum() && !answers_.contains(member);
  };
  std::vector<int> silent;
  std::ranges::copy_if(members_, std::back_inserter(silent), is_silent);
  for (const int member : silent) {
    if (member != rank_) suspected_.insert(member);
  }
}

// ---------------------------------------------------------------- what arrives

void AgreementNode::lose(int peer, double now) {
  gone_.insert(peer);
  doubted_.erase(peer);
  advance(now);
}

void AgreementNode::doubt(int peer, double now) {
  if (gone_.insert(peer).second) doubted_.insert(peer);
  advance(now);
}

void AgreementNode::take(int from, const AgreementMessage& message, double now) {
  suspected_.erase(from);
  if (message.number < number_) {
    answer_about_the_past(from, message);
  } else if (message.number > number_) {
    if (later_.size() < kMostLater * members_.size()) later_.emplace_back(from, message);
  } else if (is_member(from) && is_member(rank_)) {
    take_part(from, message, now);
  }
}

void AgreementNode::answer_about_the_past(int from, const AgreementMessage& message) {
  if (message.kind != Kind::join && message.kind != Kind::prepare && message.kind != Kind::accept) return;
  AgreementMessage answer{.kind = Kind::forgotten, .number = message.number};
  if (const auto found = decided_.find(message.number); found != decided_.end()) {
    answer.kind = Kind::decide;
    answer.proposal = found->second;
  }
  send_(from, answer);
}

void AgreementNode::take_part(int from, const AgreementMessage& message, double now) {
  round_ = std::max({round_, round_of(message.ballot), round_of(message.other_ballot)});
  if (message.value) joined_[from] = {message.call, *message.value, message.gone};
  switch (message.kind) {
    case Kind::join: break;
    case Kind::prepare: answer_prepare(from, message); break;
    case Kind::promise: take_promise(from, message); break;
    case Kind::reject: take_reject(message, now); break;
    case Kind::accept: answer_accept(from, message); break;
    case Kind::accepted:
      if (phase_ == Phase::accepting && message.ballot == ballot_) answers_.insert(from);
      break;
    case Kind::decide: return decide(*message.proposal, now);
    case Kind::forgotten: is_forgotten_ = true; return;
  }
  if (message.kind == Kind::prepare || message.kind == Kind::accept) waits_since_ = now;
  advance(now);
}

void AgreementNode::answer_prepare(int from, const AgreementMessage& asked) {
  AgreementMessage answer = join_message();
  answer.ballot = asked.ballot;
  if (asked.ballot < promised_) {
    answer.kind = Kind::reject;
    answer.other_ballot = promised_;
  } else {
    promised_ = asked.ballot;
    answer.kind = Kind::promise;
    answer.other_ballot = accepted_ballot_;
    answer.proposal = accepted_;
  }
  send_(from, answer);
}

void AgreementNode::answer_accept(int from, const AgreementMessage& asked) {
  AgreementMessage answer = join_message();
  answer.ballot = asked.ballot;
  if (asked.ballot < promised_) {
    answer.kind = Kind::reject;
    answer.other_ballot = promised_;
  } else {
    promised_ = accepted_ballot_ = asked.ballot;
    accepted_ = asked.proposal;
    answer.kind = Kind::accepted;
  }
  send_(from, answer);
}

void AgreementNode::take_promise(int from, const AgreementMessage& promise) {
  if (phase_ != Phase::preparing || promise.ballot != ballot_) return;
  answers_.insert(from);
  if (!promise.proposal || promise.other_ballot <= latest_ballot_) return;
  latest_ballot_ = promise.other_ballot;
  proposal_ = promise.proposal;
}

void AgreementNode::take_reject(const AgreementMessage& reject, double now) {
  if (phase_ != Phase::idle && reject.ballot == ballot_) back_off(now);
}

// ---------------------------------------------------------------- the leader

// Every call ends at once where there is nothing to do, so that it may follow whatever has changed.
void AgreementNode::advance(double now) {
  if (!takes_part() || is_hopeless()) return;
  if (phase_ == Phase::idle && leader() != rank_) return;
  if (phase_ == Phase::idle && now >= backs_off_until_ && joined_count() >= quorum() &&
      all_present([this](int member) { return has_joined(member); })) {
    open_ballot(now);
  }
  if (phase_ == Phase::preparing && has_answers()) propose(now);
  if (phase_ == Phase::accepting && has_answers()) {
    const Proposal proposal = *proposal_;
    decide(proposal, now);
  }
}

void AgreementNode::open_ballot(double now) {
  round_ += 1;
  ballot_ = promised_ = make_ballot(round_, rank_);
  phase_ = Phase::preparing;
  waits_since_ = now;
  answers_ = {rank_};
  latest_ballot_ = accepted_ballot_;
  proposal_ = accepted_;
  broadcast(message(Kind::prepare));
}

void AgreementNode::propose(double now) {
  if (promised_ != ballot_) return back_off(now);  // somebody else has opened a later one
  if (!proposal_ && learns_of_losses()) return open_ballot(now);
  if (!proposal_) proposal_ = make_proposal();
  phase_ = Phase::accepting;
  waits_since_ = now;
  answers_ = {rank_};
  accepted_ballot_ = ballot_;
  accepted_ = proposal_;
  broadcast(message(Kind::accept));
}

// Later ranks wait longer, so that one of two who take themselves for the leader comes through.
void AgreementNode::back_off(double now) {
  constexpr double kShare = 16;
  phase_ = Phase::idle;
  const auto place = std::ranges::lower_bound(members_, rank_) - members_.begin();
  backs_off_until_ = now + call_->patience_seconds / kShare * static_cast<double>(1 + place);
}

Proposal AgreementNode::make_proposal() const {
  Proposal proposal{.call = call_->kind, .survivors = {}};
  for (const int rank : who_reach_each_other()) {
    proposal.survivors.push_back({static_cast<std::uint32_t>(rank), joined_.at(rank).value});
  }
  return proposal;
}

std::vector<int> AgreementNode::who_is_here() const {
  std::vector<int> ranks;
  std::ranges::copy_if(members_, std::back_inserter(ranks),
                       [this](int member) { return is_present(member) && has_joined(member); });
  return ranks;
}

bool AgreementNode::has_lost(int rank, int other) const {
  const auto& gone = joined_.at(rank).gone;
  return std::ranges::find(gone, static_cast<std::uint32_t>(other)) != gone.end();
}

// Notes who has lost whom of those who are here. True where some of it is new.
bool AgreementNode::learns_of_losses() {
  const std::size_t known = losses_.size();
  const std::vector<int> ranks = who_is_here();
  for (const int rank : ranks) {
    for (const int other : ranks) {
      if (has_lost(rank, other)) losses_.emplace(rank, other);
    }
  }
  return losses_.size() > known;
}

// Whoever has lost the most others goes first, and of equals the last.
std::vector<int> AgreementNode::who_reach_each_other() const {
  std::vector<int> ranks = who_is_here();
  while (true) {
    const auto losses = [&](int rank) {
      return std::ranges::count_if(ranks, [&](int other) { return has_lost(rank, other) || has_lost(other, rank); });
    };
    const auto worst = std::ranges::max_element(ranks, {}, [&](int rank) { return std::pair(losses(rank), rank); });
    if (losses(*worst) == 0) return ranks;
    ranks.erase(worst);
  }
}

void AgreementNode::decide(const Proposal& proposal, double now) {
  AgreementMessage news{.kind = Kind::decide, .number = number_};
  news.proposal = proposal;
  broadcast(news);
  decided_[number_] = proposal;
  if (decided_.size() > kMostDecided) decided_.erase(decided_.begin());
  members_.clear();
  for (const Survivor& survivor : news.proposal->survivors) members_.push_back(static_cast<int>(survivor.rank));
  number_ += 1;
  joined_.clear();
  promised_ = accepted_ballot_ = 0;
  accepted_.reset();
  phase_ = Phase::idle;
  losses_.clear();
  for (const auto& [from, message] : std::exchange(later_, {})) take(from, message, now);
}

// ---------------------------------------------------------------- messages and words

AgreementMessage AgreementNode::message(Kind kind) const {
  AgreementMessage made = join_message();
  made.kind = kind;
  made.ballot = ballot_;
  if (kind == Kind::accept) made.proposal = proposal_;
  return made;
}

AgreementMessage AgreementNode::join_message() const {
  AgreementMessage made{.kind = Kind::join, .number = number_};
  if (const auto mine = joined_.find(rank_); mine != joined_.end()) {
    made.call = mine->second.call;
    made.value = mine->second.value;
  }
  made.gone.assign(gone_.begin(), gone_.end());
  return made;
}

void AgreementNode::broadcast(const AgreementMessage& message) const {
  for (const int member : members_) {
    if (member != rank_ && !gone_.contains(member)) send_(member, message);
  }
}

std::string AgreementNode::describe_waiting() const {
  std::vector<int> missing;
  std::ranges::copy_if(members_, std::back_inserter(missing),
                       [this](int member) { return !joined_.contains(member) && !gone_.contains(member); });
  if (missing.empty()) return "its messages are not answered by enough ranks";
  return missing.size() == 1 ? fmt::format("rank {} has not come", missing.front())
                             : fmt::format("ranks {} have not come", fmt::join(missing, ", "));
}

std::string AgreementNode::describe_doubted() const {
  return fmt::format("what rank {} sends is not understood", *doubted_.begin());
}

std::string AgreementNode::describe_members_left() const {
  const auto left = std::ranges::count_if(members_, [this](int member) { return !gone_.contains(member); });
  return fmt::format("{} of {} ranks {} left, and agreement {} takes {}", left, members_.size(),
                     left == 1 ? "is" : "are", number_, quorum());
}

}  // namespace tulle
