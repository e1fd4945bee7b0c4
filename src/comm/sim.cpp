#include "tulle/comm/sim.hpp"

#include <fmt/format.h>

#include "comm/sim_network.hpp"

namespace tulle {

namespace {

class SimTransport final : public Transport {
 public:
  SimTransport(std::shared_ptr<SimNetwork> network, int rank) : network_(std::move(network)), rank_(rank) {}

  std::string name() const override { return "sim"; }
  int rank() const override { return rank_; }
  int size() const override { return network_->ranks(); }
  bool progresses_alone() const override { return true; }
  void attach(MessageSink& sink) override { network_->attach(rank_, sink); }
  void send(int peer, Message message) override { network_->send(rank_, peer, std::move(message)); }
  bool poll() override { return network_->step(); }
  void idle(int) override {
    throw Error(ErrorKind::deadline, "the simulation has come to a stop: ranks wait and nothing is under way");
  }
  void wake() override {}
  double now() const override { return network_->now(rank_); }
  void set_timer(double seconds) override { network_->set_timer(rank_, seconds); }
  void set_background_timer(double seconds, double patience_seconds) override {
    network_->set_background_timer(rank_, seconds, patience_seconds);
  }
  std::uint64_t bytes_heard(int peer) const override { return network_->bytes_heard(rank_, peer); }
  void charge(double seconds) override { network_->charge(rank_, seconds); }
  Profile default_profile() const override { return network_->profile(); }
  int node_of(int rank) const override { return network_->node_of(rank); }
  void require_progress_thread() const override {
    throw Error(ErrorKind::unsupported, "a simulation runs in one thread and has no use for a progress thread");
  }

 private:
  std::shared_ptr<SimNetwork> network_;
  int rank_;
};

void require_ranks_of(const SimFaults& faults, int ranks) {
  const auto require = [&](int rank) {
    if (rank >= 0 && rank < ranks) return;
    throw Error(ErrorKind::bad_input, fmt::format("a fault of rank {} in a simulation of {}", rank, ranks));
  };
  for (const SimDeath& death : faults.deaths) require(death.rank);
  for (const SimRumor& rumor : faults.rumors) {
    require(rumor.to);
    require(rumor.about);
  }
  for (const SimPartition& partition : faults.partitions) {
    for (const int rank : partition.island) require(rank);
  }
}

}  // namespace

SimWorld::SimWorld(const SimOptions& options) {
  if (options.ranks < 1) throw Error(ErrorKind::bad_input, "a simulation needs at least one rank");
  require_ranks_of(options.faults, options.ranks);
  const Network network = options.network.value_or(flat_network(options.profile));
  network.validate(options.ranks);
  network_ = std::make_shared<SimNetwork>(options, network);
  for (int rank = 0; rank < options.ranks; ++rank) {
    communicators_.emplace_back(std::make_unique<SimTransport>(network_, rank));
  }
}

SimWorld::~SimWorld() = default;

std::vector<std::exception_ptr> SimWorld::try_run(const Program& program) {
  std::vector<Task<>> tasks;
  for (Communicator& communicator : communicators_) tasks.push_back(program(communicator));
  for (int rank = 0; rank < size(); ++rank) {
    if (!is_dead(rank)) communicator(rank).engine()->spawn(tasks[static_cast<std::size_t>(rank)]);
  }
  for (Communicator& communicator : communicators_) communicator.engine()->settle_now();
  for (int rank = 0; rank < size(); ++rank) {
    const Task<>& task = tasks[static_cast<std::size_t>(rank)];
    communicator(rank).engine()->progress_until([&] { return task.done() || is_dead(rank); });
  }
  std::vector<std::exception_ptr> errors;
  for (Task<>& task : tasks) {
    try {
      if (!task.done()) throw Error(ErrorKind::peer_failed, "the simulation has killed this rank");
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

bool SimWorld::is_dead(int rank) const { return network_->is_dead(rank); }
double SimWorld::elapsed_seconds() const { return network_->elapsed_seconds(); }
SimTotals SimWorld::totals() const { return network_->totals(); }

}  // namespace tulle
