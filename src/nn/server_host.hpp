// A server rank of a training: serves its share of the weights, and on rank 0 gathers what workers report.
#pragma once

#include <exception>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "base/file_lock.hpp"
#include "nn/server_session.hpp"
#include "nn/worker_report.hpp"
#include "tulle/comm/datagram.hpp"
#include "tulle/server/reception.hpp"
#include "tulle/server/server.hpp"

namespace tulle::nn {

class ServerHost {
 public:
  /// The job must outlive it. The server's weights are the learner's, or those of the checkpoint.
  explicit ServerHost(ServerJob& job);

  /// Until every worker has left or is lost. Throws peer_failed where none left in order.
  TrainResult run();

 private:
  void begin_run();
  void agree_on_loaded(std::uint64_t loaded_run);
  server::Server make_server();
  void set_weights();
  std::uint64_t least_version() const;
  Task<> serve();
  Task<> collect();
  bool is_leader() const { return job_.communicator.rank() == 0; }
  double now() const;

  void open_door();
  void close_door();
  void welcome(const Communicator& group, std::span<const int> places);
  void take_from_newcomers();
  void take(int rank, const Datagram& datagram);
  void look_at_server();
  bool is_over(int worker, int epoch) const;
  bool is_gone(int worker) const;
  bool has_open_epoch() const;
  void finish_epochs();
  void finish_epoch(int epoch);
  void save();
  void tell_of_failed_checkpoint(const Error& error);
  std::string report() const;
  void tell(const std::string& message) const;

  // By worker, from 0.
  struct Known {
    int last_epoch = 0;  ///< that it has reported
    bool has_left = false;
    WorkerCosts last;       ///< that this process has told
    WorkerCosts of_former;  ///< of those that had the place before

    /// A new process counts from 0.
    void begin_anew() { of_former.add(std::exchange(last, {})); }
  };
  // Newcomers that came in together.
  struct Group {
    Communicator communicator;
    std::vector<int> places;  ///< by newcomer
    DatagramPort reports;

    Group(const Communicator& group, std::span<const int> its_places)
        : communicator(group), places(its_places.begin(), its_places.end()), reports(group, kReportPort) {}
  };

  ServerJob& job_;
  DatagramPort run_news_;
  std::optional<FileLock> lock_;  // rank 0's, on what the job writes
  std::uint64_t run_ = 0;         // this job's number, in every file that it writes
  std::optional<DatagramPort> reports_;
  std::optional<server::Server> server_;
  std::vector<Known> workers_;
  std::map<int, std::vector<WorkerReport>> epochs_;  ///< that are not over
  std::size_t told_losses_ = 0, told_arrivals_ = 0;
  std::uint64_t shown_version_ = ~std::uint64_t{0};
  bool is_serving_ = false;
  std::exception_ptr failure_;
  TrainResult result_;
  std::mutex mutex_;         // of the newcomers, who come by another thread
  std::list<Group> groups_;  // a port does not move
  std::optional<Door> door_;
  std::optional<server::Reception> reception_;  // goes first
};

}  // namespace tulle::nn
