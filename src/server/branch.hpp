// Workers of a server that came later: their letters travel on a communicator of their own.
//
// Such a communicator has an engine of its own, which somebody must drive. A thread does: it waits for what arrives
// there, and hands it over in a program on the engine of the job, so that all that a server knows is changed in one
// place and needs no lock.
#pragma once

#include <atomic>
#include <functional>
#include <optional>
#include <thread>
#include <vector>

#include "server/mail.hpp"

namespace tulle::server {

class Branch {
 public:
  /// Called on the job's engine for each letter, whose sender is a rank of the group. Must not throw.
  using Take = std::function<void(Branch& from, Letter letter)>;

  /// Ranks of `group` below `servers` are servers; rank servers + i writes for the worker of rank places[i].
  Branch(const Communicator& job, const Communicator& group, std::uint32_t port, int servers, std::vector<int> places,
         Take take);
  /// Waits for the thread. REQUIRES: not called on the job's engine, unless the thread is done.
  ~Branch();
  Branch(const Branch&) = delete;
  Branch& operator=(const Branch&) = delete;

  /// Used on the job's engine alone.
  Mail& mail() { return mail_; }
  /// The worker that a rank of the group writes for.
  std::optional<int> place_of(int rank) const;
  /// The rank of the group that writes for a worker. REQUIRES: there is one.
  int rank_of(int place) const;

  /// The thread ends soon, and does not wait for that.
  void stop() { is_stopping_ = true; }
  bool is_done() const { return is_done_; }

 private:
  void listen();
  Task<> hand_over(Datagram datagram);

  Communicator job_;
  int servers_;
  std::vector<int> places_;
  Take take_;
  Mail mail_;
  std::atomic<bool> is_stopping_ = false, is_done_ = false;
  std::thread thread_;
};

}  // namespace tulle::server
