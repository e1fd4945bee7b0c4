// From a choice of transport to ranks that run.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "cli/track.hpp"
#include "tulle/comm/network.hpp"
#include "tulle/linear/waiting.hpp"

namespace tulle::cli {

enum class TransportChoice { mpi, threads, sim };

/// What the environment says before MPI is started, so that mistakes can be told without it.
struct Job {
  bool is_under_mpirun = false;
  int rank = 0;
  bool prints() const { return rank == 0; }
};
Job this_job();

/// "mpi, threads, sim", or without mpi where this build has none.
std::string allowed_transports();
/// Throws bad_input that lists the allowed names.
TransportChoice transport_from(std::string_view name);

/// "Open MPI v4.1.4", or empty for a build without MPI.
std::string mpi_library();

struct LaunchOptions {
  TransportChoice transport = TransportChoice::threads;
  int ranks = 4;                            ///< of threads and sim; mpirun decides otherwise
  Profile profile;                          ///< of sim
  std::optional<Network> network;           ///< of sim; its wires are in place of the profile's
  std::optional<std::string> profile_path;  ///< a file that mpi and threads load, as rank 0 reads it
};

/// Runs `body` once for each thread or process that speaks for ranks. Gives what `body` gives to the leader, and 0 to
/// the others. On an exception it prints what happened, once, and gives 1; under MPI it then ends the process, because
/// MPI_Finalize would wait for ranks that may be gone.
int launch(const LaunchOptions& options, const std::function<int(Track&)>& body);
/// The same for a task of each rank's, which awaits in simulation, where all share a thread, and blocks elsewhere.
using RankTask = std::function<Task<int>(Communicator, linear::Waiting)>;
int launch_tasks(const LaunchOptions& options, const RankTask& body);

/// Runs a command of one process: prints what an exception says and gives 1.
int guarded(const std::function<int()>& body);

}  // namespace tulle::cli
