#include "tulle/comm/sim.hpp"

#include <algorithm>
#include <functional>
#include <limits>

#include "tulle/base/philox.hpp"

namespace tulle {

// The wires, the ports and the clocks of all ranks, and the events that are still to come.
class SimNetwork {
 public:
  explicit SimNetwork(const SimOptions& options) : options_(options), random_(options.seed), ports_(rank_count()) {}

  void attach(int rank, MessageSink& sink) { port(rank).sink = &sink; }
  double now(int rank) { return std::max(port(rank).clock, timer_time_); }
  void charge(int rank, double seconds) { port(rank).clock += seconds; }
  // One timer a rank is enough: when it rings, the engine asks for the next.
  void set_timer(int rank, double seconds) {
    if (seconds >= port(rank).timer) return;
    port(rank).timer = seconds;
    schedule({seconds, tie(), Event::Kind::timer, rank, rank, kNoMessage});
  }
  const SimOptions& options() const { return options_; }
  const SimTotals& totals() const { return totals_; }

  void send(int source, int target, Message message) {
    message.ticket.reset();  // receivers share the buffers, and nothing that is shared is written
    totals_.messages += 1;
    totals_.bytes += message.bytes();
    Port& out = port(source);
    const double start = std::max(now(source), out.send_free);
    out.send_free = start + transfer_seconds(message);
    if (lost_to_faults(message)) return;
    const double arrival = start + options_.profile.alpha_seconds + options_.faults.max_delay_seconds * draw_if_delayed();
    schedule({arrival, tie(), Event::Kind::first_byte, source, target, under_way_.put(std::move(message))});
  }

  /// Handles the next event. False where there is none.
  bool step() {
    if (events_.empty()) return false;
    std::pop_heap(events_.begin(), events_.end(), std::greater<>());
    const Event event = events_.back();
    events_.pop_back();
    if (event.is_lane_head) advance(lane_of(event));
    switch (event.kind) {
      case Event::Kind::first_byte: occupy_receiver(event); break;
      case Event::Kind::delivery: deliver(event); break;
      case Event::Kind::timer: ring(event); break;
    }
    return true;
  }

  double elapsed_seconds() const {
    double latest = 0;
    for (const Port& each : ports_) latest = std::max(latest, each.clock);
    return latest;
  }

 private:
  struct Event {
    enum class Kind { first_byte, delivery, timer };
    double time;
    std::uint64_t tie;
    Kind kind;
    int source;
    int target;
    std::uint32_t message;  // its place in under_way_
    bool is_lane_head = false;
    bool operator>(const Event& other) const { return std::pair(time, tie) > std::pair(other.time, other.tie); }
  };
  // Events that follow one another, of which only the first is in the heap: a port sends, and receives, one message
  // after the other, and a heap of a million events would not fit the cache.
  struct Lane {
    bool has_head = false;
    double last_time = 0;
    PoolDeque<Event> waiting;
  };
  struct Port {
    MessageSink* sink = nullptr;
    Lane sending;
    Lane receiving;
    double clock = 0;
    double send_free = 0;
    double receive_free = 0;
    double timer = std::numeric_limits<double>::infinity();  // the earliest that is set
  };

  static constexpr std::uint32_t kNoMessage = ~std::uint32_t{0};

  // Messages that are sent and not delivered, in places that are used again.
  class UnderWay {
   public:
    std::uint32_t put(Message message) {
      if (free_.empty()) {
        messages_.push_back(std::move(message));
        return static_cast<std::uint32_t>(messages_.size() - 1);
      }
      const std::uint32_t place = free_.back();
      free_.pop_back();
      messages_[place] = std::move(message);
      return place;
    }
    const Message& at(std::uint32_t place) const { return messages_[place]; }
    Message take(std::uint32_t place) {
      free_.push_back(place);
      return std::move(messages_[place]);
    }

   private:
    PoolVector<Message> messages_;
    PoolVector<std::uint32_t> free_;
  };

  std::size_t rank_count() const { return static_cast<std::size_t>(options_.ranks); }
  Port& port(int rank) { return ports_[static_cast<std::size_t>(rank)]; }
  double transfer_seconds(const Message& message) const {
    return options_.profile.beta_seconds_per_byte * static_cast<double>(message.bytes());
  }
  // Events at the same time happen in an order that the seed decides.
  std::uint64_t tie() { return random_(); }
  double draw_if_delayed() { return options_.faults.max_delay_seconds > 0 ? random_.uniform() : 0; }

  Lane& lane_of(const Event& event) {
    return event.kind == Event::Kind::first_byte ? port(event.source).sending : port(event.target).receiving;
  }

  void schedule(Event event) {
    Lane& lane = lane_of(event);
    const bool may_wait = event.kind != Event::Kind::timer && event.time >= lane.last_time;  // else it overtakes
    if (may_wait && lane.has_head) {
      lane.last_time = event.time;
      lane.waiting.push_back(event);
      return;
    }
    event.is_lane_head = may_wait;
    if (may_wait) {
      lane.has_head = true;
      lane.last_time = event.time;
    }
    push(event);
  }

  void advance(Lane& lane) {
    lane.has_head = !lane.waiting.empty();
    if (!lane.has_head) return;
    Event next = lane.waiting.front();
    lane.waiting.pop_front();
    next.is_lane_head = true;
    push(next);
  }

  void push(const Event& event) {
    events_.push_back(event);
    std::push_heap(events_.begin(), events_.end(), std::greater<>());
  }

  void occupy_receiver(Event event) {
    Port& in = port(event.target);
    event.time = in.receive_free = std::max(event.time, in.receive_free) + transfer_seconds(under_way_.at(event.message));
    event.kind = Event::Kind::delivery;
    schedule(event);
  }

  void deliver(const Event& event) {
    Port& in = port(event.target);
    in.clock = std::max(in.clock, event.time);
    in.sink->deliver(event.source, under_way_.take(event.message));
    in.sink->settle();
  }

  // A timer that nobody needs any more must not move the clock, so the time counts only while it rings.
  void ring(const Event& event) {
    if (event.time == port(event.target).timer) port(event.target).timer = std::numeric_limits<double>::infinity();
    timer_time_ = event.time;
    port(event.target).sink->settle();
    timer_time_ = 0;
  }

  bool lost_to_faults(Message& message) {
    const SimFaults& faults = options_.faults;
    if (faults.drop > 0 && random_.uniform() < faults.drop) {
      totals_.faults += 1;
      return true;
    }
    if (faults.truncate > 0 && random_.uniform() < faults.truncate) truncate(message);
    if (faults.corrupt > 0 && random_.uniform() < faults.corrupt) corrupt(message);
    return false;
  }

  // Any of the message's buffers that has bytes, chosen by their share of the bytes; the head is one of them.
  Buffer& some_buffer(Message& message) {
    std::uint64_t at = random_.below(message.bytes());
    if (at < message.head.size()) return message.head;
    at -= message.head.size();
    for (Buffer& segment : message.segments) {
      if (at < segment.size()) return segment;
      at -= segment.size();
    }
    return message.head;
  }

  void truncate(Message& message) {
    totals_.faults += 1;
    Buffer& victim = some_buffer(message);
    victim = victim.slice(0, random_.below(victim.size()));
  }

  void corrupt(Message& message) {
    Buffer& victim = some_buffer(message);
    if (victim.empty() || victim.is_phantom()) return;
    totals_.faults += 1;
    Buffer changed = Buffer::copy_of(victim.bytes());
    changed.mutable_data()[random_.below(victim.size())] ^= static_cast<std::byte>(1u << random_.below(8));
    victim = std::move(changed);
  }

  SimOptions options_;
  Philox random_;
  std::vector<Port> ports_;
  PoolVector<Event> events_;
  UnderWay under_way_;
  double timer_time_ = 0;
  SimTotals totals_;
};

namespace {

class SimTransport final : public Transport {
 public:
  SimTransport(std::shared_ptr<SimNetwork> network, int rank) : network_(std::move(network)), rank_(rank) {}

  std::string name() const override { return "sim"; }
  int rank() const override { return rank_; }
  bool progresses_alone() const override { return true; }
  int size() const override { return network_->options().ranks; }
  void attach(MessageSink& sink) override { network_->attach(rank_, sink); }
  void send(int peer, Message message) override { network_->send(rank_, peer, std::move(message)); }
  bool poll() override { return network_->step(); }
  void idle(int) override {
    throw Error(ErrorKind::deadline, "the simulation has come to a stop: ranks wait and nothing is under way");
  }
  double now() const override { return network_->now(rank_); }
  void set_timer(double seconds) override { network_->set_timer(rank_, seconds); }
  void charge(double seconds) override { network_->charge(rank_, seconds); }
  Profile default_profile() const override { return network_->options().profile; }
  void require_progress_thread() const override {
    throw Error(ErrorKind::unsupported, "a simulation runs in one thread and has no use for a progress thread");
  }

 private:
  std::shared_ptr<SimNetwork> network_;
  int rank_;
};

}  // namespace

SimWorld::SimWorld(const SimOptions& options) {
  if (options.ranks < 1) throw Error(ErrorKind::bad_input, "a simulation needs at least one rank");
  network_ = std::make_shared<SimNetwork>(options);
  for (int rank = 0; rank < options.ranks; ++rank) {
    communicators_.emplace_back(std::make_unique<SimTransport>(network_, rank));
  }
}

SimWorld::~SimWorld() = default;

std::vector<std::exception_ptr> SimWorld::try_run(const Program& program) {
  std::vector<Task<>> tasks;
  for (Communicator& communicator : communicators_) tasks.push_back(program(communicator));
  for (std::size_t rank = 0; rank < tasks.size(); ++rank) communicators_[rank].engine()->spawn(tasks[rank]);
  for (Communicator& communicator : communicators_) communicator.engine()->settle_now();
  for (std::size_t rank = 0; rank < tasks.size(); ++rank) {
    communicators_[rank].engine()->progress_until([&] { return tasks[rank].done(); });
  }
  std::vector<std::exception_ptr> errors;
  for (Task<>& task : tasks) {
    try {
      task.take();
      errors.push_back(nullptr);
    } catch (...) {
      errors.push_back(std::current_exception());
    }
  }
  return errors;
}

void SimWorld::run(const Program& program) {
  for (const std::exception_ptr& error : try_run(program)) {
    if (error) std::rethrow_exception(error);
  }
}

double SimWorld::elapsed_seconds() const { return network_->elapsed_seconds(); }
SimTotals SimWorld::totals() const { return network_->totals(); }

}  // namespace tulle
