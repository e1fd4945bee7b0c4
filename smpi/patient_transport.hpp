// The MPI transport with another way to wait: in virtual time.
#pragma once

#include <mpi.h>
#include <time.h>

#include "comm/mpi/mpi_transport.hpp"

/// Between two looks for messages it sleeps, on SMPI's clock, for a small share of the time that it has waited already.
/// Looking all the time would cost the simulator millions of probes; the transport's own waiting sleeps in real time.
class PatientTransport final : public tulle::Transport {
 public:
  explicit PatientTransport(MPI_Comm comm) : mpi_(comm, {}) {}

  std::string name() const override { return mpi_.name(); }
  int rank() const override { return mpi_.rank(); }
  int size() const override { return mpi_.size(); }
  void attach(tulle::MessageSink& sink) override { mpi_.attach(sink); }
  void send(int peer, tulle::Message message) override { mpi_.send(peer, std::move(message)); }
  bool poll() override { return mpi_.poll(); }
  double now() const override { return mpi_.now(); }

  void idle(int misses) override {
    if (misses <= 1) waiting_since_ = now();  // from 1 on after something has happened
    constexpr double kShare = 0.03;
    const timespec pause{0, static_cast<long>(kShare * (now() - waiting_since_) * 1e9)};
    if (pause.tv_nsec > 0) nanosleep(&pause, nullptr);
  }

 private:
  tulle::MpiTransport mpi_;
  double waiting_since_ = 0;
};
