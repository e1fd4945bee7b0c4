// Ranks in one thread on a transport that tests can disturb: polls that throw, peers that are lost, messages by hand.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "tulle/comm/communicator.hpp"

namespace tulle::testing {

class LoopbackTransport;

/// What the ranks share.
struct Loopback {
  struct Letter {
    int source;
    Message message;
  };
  explicit Loopback(int ranks) : boxes(static_cast<std::size_t>(ranks)), transports(boxes.size()) {}

  std::vector<std::deque<Letter>> boxes;
  std::vector<LoopbackTransport*> transports;
};

class LoopbackTransport final : public Transport {
 public:
  LoopbackTransport(std::shared_ptr<Loopback> shared, int rank) : shared_(std::move(shared)), rank_(rank) {
    shared_->transports[static_cast<std::size_t>(rank)] = this;
  }

  std::string name() const override { return "loopback"; }
  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(shared_->boxes.size()); }
  void attach(MessageSink& sink) override { sink_ = &sink; }
  void send(int peer, Message message) override {
    if (holds_tickets) {
      held.push_back(message.ticket);
    }
    message.ticket.reset();
    shared_->boxes[static_cast<std::size_t>(peer)].push_back({rank_, std::move(message)});
  }
  bool poll() override {
    if (on_poll) on_poll();
    auto& box = shared_->boxes[static_cast<std::size_t>(rank_)];
    if (box.empty()) return false;
    auto [source, message] = std::move(box.front());
    box.pop_front();
    sink_->deliver(source, std::move(message));
    return true;
  }
  void idle(int misses) override {
    if (misses > 10) time_ += 0.01;  // so that deadlines pass
  }
  double now() const override { return time_; }
  void pass(double seconds) { time_ += seconds; }

  MessageSink& sink() { return *sink_; }

  std::function<void()> on_poll;
  bool holds_tickets = false;
  std::vector<std::shared_ptr<void>> held;

 private:
  std::shared_ptr<Loopback> shared_;
  int rank_;
  MessageSink* sink_ = nullptr;
  std::atomic<double> time_ = 0;  // a progress thread lets it pass while another thread reads it
};

/// All ranks of a loopback, driven in turn.
class LoopbackWorld {
 public:
  explicit LoopbackWorld(int ranks) : shared_(std::make_shared<Loopback>(ranks)) {
    for (int rank = 0; rank < ranks; ++rank) {
      communicators_.emplace_back(std::make_unique<LoopbackTransport>(shared_, rank));
    }
  }

  Communicator& operator[](int rank) { return communicators_[static_cast<std::size_t>(rank)]; }
  LoopbackTransport& transport(int rank) { return *shared_->transports[static_cast<std::size_t>(rank)]; }
  int size() const { return static_cast<int>(communicators_.size()); }

  /// Everything that is under way arrives and is handled.
  void settle() {
    for (bool happened = true; happened;) {
      happened = false;
      for (Communicator& communicator : communicators_) happened |= communicator.engine()->progress();
    }
  }

 private:
  std::shared_ptr<Loopback> shared_;
  std::vector<Communicator> communicators_;
};

/// The kind and text of what `work` throws.
template <class Work>
std::pair<std::optional<ErrorKind>, std::string> error_of(Work work) {
  try {
    work();
  } catch (const Error& error) {
    return {error.kind(), error.what()};
  }
  return {std::nullopt, "no error"};
}

}  // namespace tulle::testing
