// Messages that belong to no operation: for a server that lives for days, and for ranks that find out who is left.
//
// A datagram has no deadline, no answer and no order but its sender's. It may come late, and it goes on when the
// communicator's collectives are broken.
#pragma once

#include <coroutine>
#include <cstdint>
#include <memory>
#include <optional>

#include "tulle/comm/communicator.hpp"

#pragma GCC visibility push(default)
namespace tulle {

struct Datagram {
  int from = 0;
  Segments segments;
  /// Set where this is no message but the news that `from` is gone: see Communicator::set_peer_policy().
  std::optional<Error> failure;
};

/// One end of the datagrams between the members of a communicator that have a port of the same number. What arrives
/// while a member has none is kept until it opens one, within Engine::set_most_early_bytes(). Any thread may use it,
/// one at a time for receiving; co_await is for programs that run on the communicator's engine.
class DatagramPort {
 public:
  class Receive;
  class ReceiveWithin;

  /// Throws bad_input where this rank has a port of that number open, or from 2^24 - 1 on.
  explicit DatagramPort(Communicator communicator, std::uint32_t number = 0);
  /// Throws away what nobody received.
  ~DatagramPort();
  DatagramPort(const DatagramPort&) = delete;
  DatagramPort& operator=(const DatagramPort&) = delete;

  /// Sends and goes on. The segments must not be written any more. REQUIRES: `to` is another member.
  void send(int to, Segments segments);
  /// What has arrived, without looking at the network.
  std::optional<Datagram> try_receive();
  /// Waits for the next one, and gives none when `seconds` have passed on the transport's clock. Not for simulations,
  /// which await.
  std::optional<Datagram> receive_for(double seconds);
  /// co_await gives the next one.
  Receive receive();
  /// co_await gives what receive_for() gives, in simulations too. REQUIRES: the port outlives the wait.
  ReceiveWithin receive_within(double seconds);

 private:
  Communicator communicator_;
  std::uint32_t number_;
  std::shared_ptr<DatagramQueue> queue_;  ///< also of who waits, and may be ended after the port
};

/// Awaitable of DatagramPort::receive().
class [[nodiscard]] DatagramPort::Receive {
 public:
  explicit Receive(const DatagramPort& port) : engine_(*port.communicator_.engine()), queue_(port.queue_) {}
  /// A coroutine that ends while it waits is not woken any more.
  ~Receive();
  Receive(const Receive&) = delete;
  Receive& operator=(const Receive&) = delete;
  bool await_ready();
  template <class Promise>
  void await_suspend(std::coroutine_handle<Promise> waiter) {
    wait(waiter.promise());
  }
  Datagram await_resume();

 private:
  void wait(detail::PromiseBase& waiter);

  Engine& engine_;
  std::shared_ptr<DatagramQueue> queue_;
  std::optional<Datagram> datagram_;
  detail::PromiseBase* waiter_ = nullptr;
};

/// Awaitable of DatagramPort::receive_within(). A coroutine that is dropped while it waits waits no more.
class [[nodiscard]] DatagramPort::ReceiveWithin {
 public:
  ReceiveWithin(DatagramPort& port, double seconds) : port_(port), seconds_(seconds) {}
  ~ReceiveWithin() { stop_waiting(); }
  ReceiveWithin(const ReceiveWithin&) = delete;
  ReceiveWithin& operator=(const ReceiveWithin&) = delete;
  bool await_ready();
  template <class Promise>
  void await_suspend(std::coroutine_handle<Promise> waiter) {
    wait(waiter.promise());
  }
  std::optional<Datagram> await_resume();

 private:
  void wait(detail::PromiseBase& waiter);
  void stop_waiting() noexcept;

  DatagramPort& port_;
  double seconds_;
  double end_ = 0;  ///< on the transport's clock
  detail::PromiseBase* waiter_ = nullptr;
  std::optional<Datagram> datagram_;
};

}  // namespace tulle
#pragma GCC visibility pop
