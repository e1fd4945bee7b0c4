// The transport on MPI: polls for envelopes, receives detached segments where they are wanted.
#pragma once

#include <mpi.h>

#include <memory>
#include <string>

#include "comm/mpi/envelope.hpp"
#include "comm/mpi/mpi_allreduce.hpp"
#include "comm/mpi/mpi_error.hpp"
#include "comm/mpi/request_set.hpp"
#include "tulle/comm/mpi.hpp"
#include "tulle/comm/transport.hpp"

namespace tulle {

class MpiTransport final : public Transport {
 public:
  /// Where the ranks are.
  struct Placement {
    bool on_one_node = false;
    double ranks_per_core = 1;   ///< of the fullest node, at least 1
    PoolVector<int> nodes = {};  ///< of each rank: the lowest rank there
  };

  /// Duplicates `comm`. Collective.
  MpiTransport(MPI_Comm comm, const MpiOptions& options);
  ~MpiTransport() override;

  std::string name() const override { return "mpi"; }
  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(sources_.size()); }
  void attach(MessageSink& sink) override { sink_ = &sink; }
  void send(int peer, Message message) override;
  bool poll() override;
  /// After the end of MPI it stands still: MPICH ends a process that asks then.
  double now() const override { return mpi_is_running() ? MPI_Wtime() : 0; }
  void push() override;
  Profile default_profile() const override;
  int node_of(int rank) const override { return placement_.nodes[static_cast<std::size_t>(rank)]; }
  NativeAllreduce* native_allreduce() override { return &allreduce_; }
  void require_progress_thread() const override;
  bool is_reached(int) const override;

 private:
  // A message on its way out. Its requests share it.
  struct Departure {
    int peer;
    Message message;
    Buffer envelope;
  };
  // A message on its way in.
  struct Arrival {
    int source;
    Buffer envelope;
    bool has_envelope = false;
    Message message = {};
    int missing_pieces = 0;
  };
  // What one receive brings.
  struct Piece {
    std::shared_ptr<Arrival> arrival;
    int bytes;
  };
  struct Source {
    PoolDeque<std::shared_ptr<Arrival>> unopened;  ///< in the order of matching; bodies are received in this order
    bool lost = false;                             ///< what it sends is not understood any more
  };
  struct Failure {
    int peer;
    ErrorKind kind;
    std::string reason;
  };

  void post_send(const std::shared_ptr<Departure>& departure, const std::byte* data, int bytes, int tag);
  bool finish_sends();
  bool accept_envelope();
  bool finish_receives();
  void open_envelopes(Source& source);
  void receive_bodies(const std::shared_ptr<Arrival>& arrival);
  Buffer landing_of(const Arrival& arrival, std::size_t segment, std::uint64_t bytes);
  void receive_segment(const std::shared_ptr<Arrival>& arrival, Buffer& landing);
  bool report_failures();
  void lose(int peer, ErrorKind kind, const std::string& reason);
  bool wind_up();

  MpiOptions options_;
  MPI_Comm comm_ = MPI_COMM_NULL;
  int rank_ = 0;
  Placement placement_;
  MessageSink* sink_ = nullptr;
  PoolVector<Source> sources_;
  RequestSet<std::shared_ptr<Departure>> sends_;
  RequestSet<Piece> receives_;
  PoolVector<Failure> failures_;
  bool messages_may_linger_ = false;  ///< something was sent that its receiver may never take
  MpiAllreduce allreduce_;
};

}  // namespace tulle
