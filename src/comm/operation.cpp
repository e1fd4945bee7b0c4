#include "tulle/comm/operation.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>

#include "base/require_deadline.hpp"
#include "comm/checksums.hpp"
#include "tulle/comm/engine.hpp"

namespace tulle {

// Goes with the last message that carried it, which tells the operation that nobody reads its memory any more.
struct Operation::Ticket {
  explicit Ticket(const std::shared_ptr<Operation>& owner) : operation(owner) {}
  ~Ticket() {
    const std::shared_ptr<Operation> owner = operation.lock();
    if (!owner) return;
    owner->is_drained_ = true;
    owner->want_attention();
  }
  Ticket(const Ticket&) = delete;
  Ticket& operator=(const Ticket&) = delete;

  std::weak_ptr<Operation> operation;
};

Operation::Operation(Engine& engine, std::shared_ptr<Context> context, Channel& channel,
                     const OperationSettings& settings)
    : engine_(engine), context_(std::move(context)), channel_(channel), settings_(settings) {
  static const bool all_have_checksums = checksums_of_environment() == Checksums::all;
  settings_.checksum |= all_have_checksums;
  const bool has_own = settings_.deadline_seconds != 0;
  if (!has_own) settings_.deadline_seconds = context_->default_deadline_seconds;
  require_deadline(settings_.deadline_seconds,
                   has_own ? "the deadline of a call" : "the communicator's default deadline");
  deadline_ = engine.transport_->now() + settings_.deadline_seconds;
}

Operation::~Operation() = default;

void Operation::set_sequence(std::uint64_t sequence) {
  sequence_ = settings_.signature.sequence = sequence;
  fingerprint_ = settings_.signature.fingerprint();
}

bool Operation::is_timed() const { return is_blocking() || engine_.progresses_alone(); }

void Operation::send(int to, Step step, Segments segments, std::uint64_t data_bytes) {
  assert(to >= 0 && to < size() && to != rank());
  if (error_) throw *error_;
  if (!ticket_) ticket_ = std::allocate_shared<Ticket>(PoolAllocator<Ticket>(), shared_from_this());
  MessageHeader header;
  header.has_checksum = settings_.checksum;
  header.context = context_->id;
  header.epoch = context_->epoch;
  header.channel = channel_.number;
  header.sequence = sequence_;
  header.step = step;
  header.fingerprint = fingerprint_;
  header.last_call = last_call_;
  Message message{encode_message_head(header, segments), std::move(segments), ticket_, counts_.depth + 1};
  counts_.messages_sent += 1;
  counts_.bytes_sent += message.bytes();
  counts_.data_bytes_sent += data_bytes;
  engine_.send(context_->world_ranks[static_cast<std::size_t>(to)], std::move(message));
}

Operation::Receive Operation::receive(int from, Step step) {
  assert(from >= 0 && from < size() && from != rank());
  return Receive(*this, from, step);
}

Operation::Receive Operation::receive_next(Step step) { return Receive(*this, kAnyPeer, step); }

Operation::PollUntil Operation::poll_until(std::function<bool()> ready) { return PollUntil(*this, std::move(ready)); }

void Operation::push() { engine_.push(); }

double Operation::seconds() const { return engine_.transport_->now(); }

void Operation::charge(const KernelReport& report) {
  const Profile& profile = context_->profile;
  charge(profile.gamma_sparse_seconds * static_cast<double>(report.sparse_items) +
         profile.gamma_dense_seconds * static_cast<double>(report.dense_items));
}

void Operation::charge(double seconds) { engine_.transport_->charge(seconds); }

NativeAllreduce* Operation::native_allreduce() const {
  const bool is_world = context_ == engine_.world_ && channel_.number == 0;
  return is_world ? engine_.transport_->native_allreduce() : nullptr;
}

bool Operation::is_alone() const { return engine_.running_ == 1; }

void Operation::accept(Incoming message, Ticks last_call) {
  last_call_ = std::max(last_call_, last_call);
  const auto waiter =
      std::find_if(waiting_.begin(), waiting_.end(), [&](const Receive* receive) { return receive->matches(message); });
  if (waiter == waiting_.end()) {
    inbox_.push_back(std::move(message));
    return;
  }
  Receive* const receive = *waiter;
  waiting_.erase(waiter);
  receive->message_ = std::move(message);
  engine_.ready_.push(*receive->waiter_);
}

void Operation::fail(const Error& error) {
  if (error_) return;
  error_ = error;
  for (Receive* const receive : waiting_) engine_.ready_.push(*receive->waiter_);
  waiting_.clear();
  if (poll_ != nullptr) engine_.ready_.push(*std::exchange(poll_, nullptr)->waiter_);
  want_attention();
}

void Operation::want_attention() {
  if (is_finished() || std::exchange(wants_attention_, true)) return;
  next_for_attention_ = std::exchange(engine_.first_for_attention_, this);
}

std::string Operation::describe() const {
  const std::string on_channel = channel() != 0 ? fmt::format(" of channel {}", channel()) : "";
  return fmt::format("operation {}{} ({})", sequence_, on_channel, signature().describe());
}

// The peers that a receive can still be satisfied by: for receive_next(), those that have not sent in this step yet.
std::string Operation::describe_peers(const Receive& receive) const {
  if (receive.from_ != kAnyPeer) return fmt::format("rank {}", receive.from_);
  constexpr int kMostNamed = 16;
  std::string names;
  int missing = 0;
  for (int peer = 0; peer < size(); ++peer) {
    const bool arrived = std::find(taken_.begin(), taken_.end(), std::pair(receive.step_, peer)) != taken_.end();
    if (peer == rank() || arrived || ++missing > kMostNamed) continue;
    names += fmt::format("{}{}", names.empty() ? "" : ", ", peer);
  }
  if (missing > kMostNamed) names += fmt::format(" and {} more", missing - kMostNamed);
  return (missing == 1 ? "rank " : "ranks ") + names;
}

bool Operation::is_in_vain(const Receive& receive) const {
  if (engine_.left_.empty()) return false;
  if (receive.from_ != kAnyPeer) return engine_.has_left(*context_, receive.from_);
  for (int peer = 0; peer < size(); ++peer) {
    const bool arrived = std::find(taken_.begin(), taken_.end(), std::pair(receive.step_, peer)) != taken_.end();
    if (peer != rank() && !arrived && !engine_.has_left(*context_, peer)) return false;
  }
  return true;
}

Error Operation::left_alone(const Receive& receive) const {
  Error error(ErrorKind::peer_failed, fmt::format("{} waits in step {} for {}, which left the job: its program ended",
                                                  describe(), receive.step_, describe_peers(receive)));
  error = error.at_rank(rank());
  return receive.from_ != kAnyPeer ? error.with_peer(receive.from_) : error;
}

std::string Operation::describe_waiting() const {
  if (state_ == State::draining) return "its last messages have not been taken by their receivers";
  std::string text;
  for (const Receive* const receive : waiting_) {
    text += fmt::format("{}in step {} for {}", text.empty() ? "" : ", ", receive->step_, describe_peers(*receive));
  }
  if (!text.empty()) return "it waits " + text;
  if (poll_ != nullptr) return "it waits for the transport's own collective";
  return "it waits for nobody: this rank itself was stopped, or had no time to go on with it";
}

// ---------------------------------------------------------------- awaitables

bool Operation::Receive::await_ready() {
  auto& inbox = operation_.inbox_;
  const auto match =
      std::find_if(inbox.begin(), inbox.end(), [&](const Incoming& message) { return matches(message); });
  if (match == inbox.end()) return operation_.error_.has_value() || operation_.is_in_vain(*this);
  message_ = std::move(*match);
  if (&*match != &inbox.back()) *match = std::move(inbox.back());
  inbox.pop_back();
  return true;
}

void Operation::Receive::wait(detail::PromiseBase& waiter) {
  waiter_ = &waiter;
  operation_.waiting_.push_back(this);
}

Incoming Operation::Receive::await_resume() {
  if (operation_.error_) throw *operation_.error_;
  if (!message_) throw operation_.left_alone(*this);
  Counts& counts = operation_.counts_;
  counts.messages_received += 1;
  counts.depth = std::max(counts.depth, message_->depth);
  if (from_ == kAnyPeer) operation_.taken_.emplace_back(step_, message_->from);
  return std::move(*message_);
}

void Operation::PollUntil::wait(detail::PromiseBase& waiter) {
  waiter_ = &waiter;
  operation_.poll_ = this;
  operation_.engine_.polling_.push_back(&operation_);
}

void Operation::PollUntil::await_resume() {
  if (operation_.error_) throw *operation_.error_;
}

Operation::Landing::Landing(Operation& operation, LandingFunction function)
    : operation_(operation), function_(std::move(function)), older_(std::exchange(operation.first_landing_, this)) {}

Operation::Landing::~Landing() {
  Landing** link = &operation_.first_landing_;
  while (*link != this) link = &(*link)->older_;
  *link = older_;
}

}  // namespace tulle
