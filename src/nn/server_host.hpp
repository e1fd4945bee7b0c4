// A server rank of a training: serves its share of the weights, and on rank 0 gathers what workers report.
#pragma once

#include <exception>
#include <map>
#include <optional>
#include <vector>

#include "nn/server_session.hpp"
#include "nn/worker_report.hpp"
#include "tulle/comm/datagram.hpp"
#include "tulle/server/server.hpp"

namespace tulle::nn {

class ServerHost {
 public:
  /// The job must outlive it. The server's weights are the learner's, or those of the checkpoint.
  explicit ServerHost(ServerJob& job);

  /// Until every worker has left or is lost. Throws peer_failed where none left in order.
  TrainResult run();

 private:
  server::Server make_server() const;
  void set_weights();
  Task<> serve();
  Task<> collect();
  bool is_leader() const { return job_.communicator.rank() == 0; }
  double now() const;

  void take(const Datagram& datagram);
  void look_at_server();
  bool is_over(int worker, int epoch) const;
  bool has_open_epoch() const;
  void finish_epochs();
  void finish_epoch(int epoch);
  void save();
  std::string report() const;
  void tell(const std::string& message) const;

  // By worker, from 0.
  struct Known {
    int last_epoch = 0;  ///< that it has reported
    bool is_gone = false;
    bool has_left = false;
  };

  ServerJob& job_;
  std::optional<server::Server> server_;
  std::optional<DatagramPort> reports_;  ///< on rank 0
  std::vector<Known> workers_;
  std::map<int, std::vector<WorkerReport>> epochs_;  ///< that are not over
  std::size_t told_losses_ = 0;
  std::uint64_t shown_version_ = ~std::uint64_t{0};
  bool is_serving_ = false;
  std::exception_ptr failure_;
  TrainResult result_;
};

}  // namespace tulle::nn
