#include "tulle/comm/datagram.hpp"

#include <fmt/format.h>

#include <cassert>
#include <cmath>

#include "comm/context_table.hpp"
#include "comm/datagram_queue.hpp"

namespace tulle {

DatagramPort::DatagramPort(Communicator communicator, std::uint32_t number)
    : communicator_(std::move(communicator)), number_(number), queue_(std::make_shared<DatagramQueue>()) {
  if (number >= kAgreementPort) {
    throw Error(ErrorKind::bad_input, fmt::format("datagram port {} is not below {}", number, kAgreementPort));
  }
  communicator_.engine()->open_port(*communicator_.context(), number_, *queue_);
}

DatagramPort::~DatagramPort() { communicator_.engine()->close_port(*communicator_.context(), number_); }

void DatagramPort::send(int to, Segments segments) {
  assert(to >= 0 && to < communicator_.size() && to != communicator_.rank());
  communicator_.engine()->send_datagram(*communicator_.context(), to, number_, std::move(segments));
}

std::optional<Datagram> DatagramPort::try_receive() {
  const std::lock_guard lock(communicator_.engine()->lock_);
  return queue_->pop();
}

namespace {

// Of which no clock would ever say that it is over.
void require_time(double seconds) {
  if (std::isnan(seconds)) throw Error(ErrorKind::bad_input, "a datagram is waited for during nan s");
}

}  // namespace

std::optional<Datagram> DatagramPort::receive_for(double seconds) {
  require_time(seconds);
  Engine& engine = *communicator_.engine();
  const double end = engine.transport().now() + seconds;
  engine.progress_until([&] { return !queue_->empty() || engine.transport().now() >= end; }, Engine::kLooksAtTheClock);
  return try_receive();
}

DatagramPort::Receive DatagramPort::receive() { return Receive(*this); }

bool DatagramPort::Receive::await_ready() {
  const std::lock_guard lock(engine_.lock_);
  datagram_ = queue_->pop();
  return datagram_.has_value();
}

DatagramPort::Receive::~Receive() {
  if (waiter_ == nullptr) return;
  const std::lock_guard lock(engine_.lock_);
  queue_->forget(*waiter_);
}

void DatagramPort::Receive::wait(detail::PromiseBase& waiter) {
  waiter_ = &waiter;
  const std::lock_guard lock(engine_.lock_);
  queue_->wake_with(waiter);
}

Datagram DatagramPort::Receive::await_resume() {
  if (!datagram_) (void)await_ready();
  waiter_ = nullptr;
  return std::move(*datagram_);
}

DatagramPort::ReceiveWithin DatagramPort::receive_within(double seconds) {
  require_time(seconds);
  return {*this, seconds};
}

bool DatagramPort::ReceiveWithin::await_ready() {
  datagram_ = port_.try_receive();
  return datagram_.has_value() || seconds_ <= 0;
}

void DatagramPort::ReceiveWithin::wait(detail::PromiseBase& waiter) {
  Engine& engine = *port_.communicator_.engine();
  end_ = engine.transport().now() + seconds_;
  waiter_ = &waiter;
  const std::lock_guard lock(engine.lock_);
  port_.queue_->wake_with(waiter);
  engine.contexts().alarms.set(end_, *port_.queue_);
}

void DatagramPort::ReceiveWithin::stop_waiting() noexcept {
  const detail::PromiseBase* const waiter = std::exchange(waiter_, nullptr);
  if (waiter == nullptr) return;
  Engine& engine = *port_.communicator_.engine();
  const std::lock_guard lock(engine.lock_);
  port_.queue_->forget(*waiter);
  engine.contexts().alarms.cancel(end_, *port_.queue_);
}

std::optional<Datagram> DatagramPort::ReceiveWithin::await_resume() {
  stop_waiting();
  if (!datagram_) datagram_ = port_.try_receive();
  return std::move(datagram_);
}

}  // namespace tulle
