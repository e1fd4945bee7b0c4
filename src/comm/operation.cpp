#include "tulle/comm/operation.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>

#include "tulle/comm/engine.hpp"

namespace tulle {

Operation::Operation(Engine& engine, std::shared_ptr<Context> context, const CallSignature& signature,
                     double deadline_seconds, bool checksum)
    : engine_(engine),
      context_(std::move(context)),
      signature_(signature),
      sequence_(context_->next_sequence++),
      fingerprint_(signature.fingerprint()),
      deadline_(engine.transport_->now() + deadline_seconds),
      deadline_seconds_(deadline_seconds),
      checksum_(checksum),
      ticket_(std::allocate_shared<char>(PoolAllocator<char>())) {}

Operation::~Operation() = default;

int Operation::rank() const { return context_->rank; }
int Operation::size() const { return context_->size(); }
const Profile& Operation::profile() const { return context_->profile; }

std::span<const int> Operation::nodes() const { return context_->nodes; }
int Operation::node_count() const { return context_->node_count; }
bool Operation::is_timed() const { return blocking_ || engine_.progresses_alone(); }

void Operation::send(int to, Step step, Segments segments, std::uint64_t data_bytes) {
  assert(to >= 0 && to < size() && to != rank());
  if (error_) throw *error_;
  MessageHeader header;
  header.has_checksum = checksum_;
  header.context = context_->id;
  header.sequence = sequence_;
  header.step = step;
  header.fingerprint = fingerprint_;
  Message message{encode_message_head(header, segments), std::move(segments), ticket_, counts_.depth + 1};
  counts_.messages_sent += 1;
  counts_.bytes_sent += message.bytes();
  counts_.data_bytes_sent += data_bytes;
  engine_.transport_->send(context_->world_ranks[static_cast<std::size_t>(to)], std::move(message));
}

Operation::Receive Operation::receive(int from, Step step) {
  assert(from >= 0 && from < size() && from != rank());
  return Receive(*this, from, step);
}

Operation::Receive Operation::receive_next(Step step) { return Receive(*this, kAnyPeer, step); }

Operation::PollUntil Operation::poll_until(std::function<bool()> ready) { return PollUntil(*this, std::move(ready)); }

void Operation::push() { engine_.transport_->push(); }

double Operation::seconds() const { return engine_.transport_->now(); }

void Operation::charge(const KernelReport& report) {
  const Profile& profile = context_->profile;
  charge(profile.gamma_sparse_seconds * static_cast<double>(report.sparse_items) +
         profile.gamma_dense_seconds * static_cast<double>(report.dense_items));
}

void Operation::charge(double seconds) { engine_.transport_->charge(seconds); }

NativeAllreduce* Operation::native_allreduce() const {
  return context_ == engine_.world_ ? engine_.transport_->native_allreduce() : nullptr;
}

bool Operation::is_alone() const { return engine_.active_.size() == 1; }

void Operation::accept(Incoming message) {
  const auto waiter =
      std::find_if(waiting_.begin(), waiting_.end(), [&](const Receive* receive) { return receive->matches(message); });
  if (waiter == waiting_.end()) {
    inbox_.push_back(std::move(message));
    return;
  }
  Receive* const receive = *waiter;
  waiting_.erase(waiter);
  receive->message_ = std::move(message);
  engine_.ready_.push(receive->waiter_);
}

void Operation::fail(const Error& error) {
  if (error_) return;
  error_ = error;
  for (Receive* const receive : waiting_) engine_.ready_.push(receive->waiter_);
  waiting_.clear();
  if (poll_ != nullptr) engine_.ready_.push(std::exchange(poll_, nullptr)->waiter_);
}

std::string Operation::describe() const { return fmt::format("operation {} ({})", sequence_, signature_.describe()); }

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

std::string Operation::describe_waiting() const {
  if (state_ == State::draining) return "its last messages have not been taken by their receivers";
  std::string text;
  for (const Receive* const receive : waiting_) {
    text += fmt::format("{}in step {} for {}", text.empty() ? "" : ", ", receive->step_, describe_peers(*receive));
  }
  return text.empty() ? "it waits for the transport's own collective" : "it waits " + text;
}

bool Operation::Receive::await_ready() {
  auto& inbox = operation_.inbox_;
  const auto match =
      std::find_if(inbox.begin(), inbox.end(), [&](const Incoming& message) { return matches(message); });
  if (match == inbox.end()) return operation_.error_.has_value();
  message_ = std::move(*match);
  if (&*match != &inbox.back()) *match = std::move(inbox.back());
  inbox.pop_back();
  return true;
}

void Operation::Receive::await_suspend(std::coroutine_handle<> waiter) {
  waiter_ = waiter;
  operation_.waiting_.push_back(this);
}

Incoming Operation::Receive::await_resume() {
  if (operation_.error_) throw *operation_.error_;
  Counts& counts = operation_.counts_;
  counts.messages_received += 1;
  counts.depth = std::max(counts.depth, message_->depth);
  if (from_ == kAnyPeer) operation_.taken_.emplace_back(step_, message_->from);
  return std::move(*message_);
}

void Operation::PollUntil::await_suspend(std::coroutine_handle<> waiter) {
  waiter_ = waiter;
  operation_.poll_ = this;
}

void Operation::PollUntil::await_resume() {
  if (operation_.error_) throw *operation_.error_;
}

}  // namespace tulle
