#include "tulle/comm/threads.hpp"

#include <fmt/format.h>

#include <chrono>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "comm/thrown.hpp"

namespace tulle {
namespace {

// What has arrived at one rank and has not been polled yet.
class Mailbox {
 public:
  struct Letter {
    int source;
    Message message;
  };
  // That a rank sends no more: it has ended in order, or its function threw.
  struct Farewell {
    int source;
    std::exception_ptr thrown;
  };
  struct Mail {
    PoolVector<Letter> letters;
    std::vector<Farewell> farewells;
    bool empty() const { return letters.empty() && farewells.empty(); }
    // Farewells come from destructors, and where there is no memory: they take none.
    void expect_farewells(std::size_t ranks) { farewells.reserve(ranks); }
  };

  void expect_farewells(std::size_t ranks) {
    mail_.expect_farewells(ranks);
    has_left_.resize(ranks);
  }

  void put(int source, Message message) {
    const std::lock_guard lock(mutex_);
    mail_.letters.push_back({source, std::move(message)});
    filled_.notify_one();
  }

  // The first farewell of a rank counts: one whose function threw says so before it ends.
  void put(Farewell farewell) noexcept {
    const std::lock_guard lock(mutex_);
    const auto source = static_cast<std::size_t>(farewell.source);
    if (has_left_[source]) return;
    has_left_[source] = true;
    mail_.farewells.push_back(std::move(farewell));
    filled_.notify_one();
  }

  // What a rank sent comes not later than its farewell. REQUIRES: `taken` is empty, and expects as many farewells.
  void take_all(Mail& taken) {
    const std::lock_guard lock(mutex_);
    std::swap(taken, mail_);
  }

  void wait_for(std::chrono::microseconds longest) {
    std::unique_lock lock(mutex_);
    filled_.wait_for(lock, longest, [this] { return !mail_.empty() || is_woken_; });
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
  Mail mail_;
  std::vector<bool> has_left_;
  bool is_woken_ = false;
};

using Mailboxes = std::vector<Mailbox>;

void tell_others(Mailboxes& mailboxes, int rank, const std::exception_ptr& thrown) noexcept {
  for (std::size_t other = 0; other < mailboxes.size(); ++other) {
    if (static_cast<int>(other) != rank) mailboxes[other].put({rank, thrown});
  }
}

class ThreadTransport final : public Transport {
 public:
  ThreadTransport(std::shared_ptr<Mailboxes> mailboxes, int rank) : mailboxes_(std::move(mailboxes)), rank_(rank) {
    polled_.expect_farewells(mailboxes_->size());
  }
  ~ThreadTransport() override { tell_others(*mailboxes_, rank_, nullptr); }

  std::string name() const override { return "threads"; }
  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(mailboxes_->size()); }
  void attach(MessageSink& sink) override { sink_ = &sink; }

  void send(int peer, Message message) override {
    message.ticket.reset();  // receivers share the buffers, and nothing that is shared is written
    mailbox(peer).put(rank_, std::move(message));
  }

  // Each letter is delivered once, and none is lost, also where that throws: the next poll goes on behind it.
  bool poll() override {
    if (polled_.empty()) mailbox(rank_).take_all(polled_);
    const bool found = !polled_.empty();
    while (next_letter_ < polled_.letters.size()) {
      auto& [source, message] = polled_.letters[next_letter_++];
      sink_->deliver(source, std::move(message));
    }
    while (next_farewell_ < polled_.farewells.size()) {
      const auto& [source, thrown] = polled_.farewells[next_farewell_++];
      thrown ? sink_->fail_peer(source, ErrorKind::peer_failed, reason_of(thrown)) : sink_->peer_left(source);
    }
    polled_.letters.clear();
    polled_.farewells.clear();
    next_letter_ = next_farewell_ = 0;
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
  static std::string reason_of(const std::exception_ptr& thrown) {
    constexpr const char* kWhere = "its function threw";
    const std::string text = error_of(thrown, kWhere).what();
    return text.starts_with(kWhere) ? text : fmt::format("{}: {}", kWhere, text);
  }

  Mailbox& mailbox(int rank) { return (*mailboxes_)[static_cast<std::size_t>(rank)]; }

  std::shared_ptr<Mailboxes> mailboxes_;
  int rank_;
  MessageSink* sink_ = nullptr;
  Mailbox::Mail polled_;
  std::size_t next_letter_ = 0, next_farewell_ = 0;  ///< of those that were polled
};

// How the ranks of one run_threads() ended.
class Endings {
 public:
  explicit Endings(std::shared_ptr<Mailboxes> mailboxes)
      : mailboxes_(std::move(mailboxes)), errors_(mailboxes_->size()) {}

  // The others hear of it at once: they may wait for this rank.
  void fail(int rank, std::exception_ptr error) noexcept {
    tell_others(*mailboxes_, rank, error);
    errors_[static_cast<std::size_t>(rank)] = std::move(error);
  }

  // What a rank throws because another has failed is worth less than what that one threw.
  void rethrow_cause() const {
    std::exception_ptr echo;
    for (const std::exception_ptr& error : errors_) {
      if (error && !is_echo(error)) std::rethrow_exception(error);
      if (!echo) echo = error;
    }
    if (echo) std::rethrow_exception(echo);
  }

 private:
  static bool is_echo(const std::exception_ptr& thrown) {
    try {
      std::rethrow_exception(thrown);
    } catch (const Error& error) {
      return error.kind() == ErrorKind::peer_failed || error.kind() == ErrorKind::broken;
    } catch (...) {
      return false;
    }
  }

  std::shared_ptr<Mailboxes> mailboxes_;
  std::vector<std::exception_ptr> errors_;  ///< by rank; each is written by its own thread
};

}  // namespace

void run_threads(int ranks, const std::function<void(Communicator&)>& body) {
  if (ranks < 1) throw Error(ErrorKind::bad_input, fmt::format("run_threads({}): needs at least one rank", ranks));
  const auto mailboxes = std::make_shared<Mailboxes>(static_cast<std::size_t>(ranks));
  for (Mailbox& mailbox : *mailboxes) mailbox.expect_farewells(mailboxes->size());
  Endings endings(mailboxes);
  {
    std::vector<std::jthread> threads;
    threads.reserve(mailboxes->size());
    const auto run_rank = [&](int rank) {
      std::optional<Communicator> communicator;  // lives until the others have been told why it ends
      try {
        body(communicator.emplace(std::make_unique<ThreadTransport>(mailboxes, rank)));
      } catch (...) {
        endings.fail(rank, std::current_exception());
      }
    };
    for (int rank = 0; rank < ranks; ++rank) {
      try {
        threads.emplace_back(run_rank, rank);
      } catch (...) {  // no thread can be started: those that run wait for this rank
        endings.fail(rank, std::current_exception());
      }
    }
  }
  endings.rethrow_cause();
}

}  // namespace tulle
