#include "tulle/comm/threads.hpp"

#include <chrono>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace tulle {
namespace {

// What has arrived at one rank and has not been polled yet.
class Mailbox {
 public:
  struct Letter {
    int source;
    Message message;
  };

  void put(int source, Message message) {
    const std::lock_guard lock(mutex_);
    letters_.push_back({source, std::move(message)});
    filled_.notify_one();
  }

  void take_all(PoolVector<Letter>& letters) {
    const std::lock_guard lock(mutex_);
    letters.swap(letters_);
  }

  void wait_for(std::chrono::microseconds longest) {
    std::unique_lock lock(mutex_);
    filled_.wait_for(lock, longest, [this] { return !letters_.empty() || is_woken_; });
    is_woken_ = false;
  }

  void wake() {
    const std::lock_guard lock(mutex_);
    is_woken_ = true;
    filled_.notify_one();
  }

 private:
  std::mutex mutex_;
  std::condition_variable filled_;
  PoolVector<Letter> letters_;
  bool is_woken_ = false;
};

using Mailboxes = std::vector<Mailbox>;

class ThreadTransport final : public Transport {
 public:
  ThreadTransport(std::shared_ptr<Mailboxes> mailboxes, int rank) : mailboxes_(std::move(mailboxes)), rank_(rank) {}

  std::string name() const override { return "threads"; }
  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(mailboxes_->size()); }
  void attach(MessageSink& sink) override { sink_ = &sink; }

  void send(int peer, Message message) override {
    message.ticket.reset();  // receivers share the buffers, and nothing that is shared is written
    mailbox(peer).put(rank_, std::move(message));
  }

  bool poll() override {
    mailbox(rank_).take_all(polled_);
    const bool found = !polled_.empty();
    for (auto& [source, message] : polled_) sink_->deliver(source, std::move(message));
    polled_.clear();
    return found;
  }

  // A letter wakes the rank, so there is no need to poll often; the limit is for deadlines.
  void idle(int misses) override {
    constexpr std::chrono::microseconds kBrief(50), kLong(2000);
    mailbox(rank_).wait_for(misses < 10 ? kBrief : kLong);
  }

  void wake() override { mailbox(rank_).wake(); }

  double now() const override {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  }

 private:
  Mailbox& mailbox(int rank) { return (*mailboxes_)[static_cast<std::size_t>(rank)]; }

  std::shared_ptr<Mailboxes> mailboxes_;
  int rank_;
  MessageSink* sink_ = nullptr;
  PoolVector<Mailbox::Letter> polled_;
};

}  // namespace

void run_threads(int ranks, const std::function<void(Communicator&)>& body) {
  if (ranks < 1) throw Error(ErrorKind::bad_input, "run_threads needs at least one rank");
  const auto mailboxes = std::make_shared<Mailboxes>(static_cast<std::size_t>(ranks));
  std::vector<std::exception_ptr> errors(static_cast<std::size_t>(ranks));
  {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < ranks; ++rank) {
      threads.emplace_back([&, rank] {
        try {
          Communicator communicator(std::make_unique<ThreadTransport>(mailboxes, rank));
          body(communicator);
        } catch (...) {
          errors[static_cast<std::size_t>(rank)] = std::current_exception();
        }
      });
    }
  }
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

}  // namespace tulle
