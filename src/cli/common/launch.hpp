// From a choice of transport to ranks that run.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "measure/local_ranks.hpp"
#include "tulle/comm/network.hpp"

namespace tulle::cli {

enum class TransportChoice { mpi, tcp, threads, sim };

/// What the environment says before anything is connected, so that mistakes can be told without it.
struct Job {
  bool is_under_mpirun = false;
  bool has_rendezvous = false;  ///< of TCP, as tulle run gives it
  int rank = 0;
  bool prints() const { return rank == 0; }
};
Job this_job();

/// For another rank than 0 with an error that most likely all have: gives rank 0 the time to say it and the launcher
/// the time to end this rank. Whoever returns from it has the error to itself, and says so.
void leave_to_rank_zero();

/// "mpi, tcp, threads, sim", or without mpi where this build has none.
std::string allowed_transports();
/// Throws bad_input that lists the allowed names.
TransportChoice transport_from(std::string_view name);

/// "Open MPI v4.1.4", or empty for a build without MPI.
std::string mpi_library();

struct LaunchOptions {
  TransportChoice transport = TransportChoice::threads;
  int ranks = 4;                            ///< of threads and sim; the launcher decides otherwise
  Profile profile;                          ///< of sim
  std::optional<Network> network;           ///< of sim; its wires are in place of the profile's
  std::optional<std::string> profile_path;  ///< a file that mpi and threads load, as rank 0 reads it
  std::optional<double> deadline_seconds;   ///< of every call that the command makes; unset: the library's default
  bool progress_thread = false;             ///< one makes progress while the ranks compute; not in sim
};

/// Runs `body` once for each thread or process that speaks for ranks. Gives what `body` gives to the leader, and 0 to
/// the others. On an exception it prints what happened and gives 1; under MPI it then ends the process, because
/// MPI_Finalize would wait for ranks that may be gone. No rank ends without a word on why: rank 0 speaks for all where
/// all have the same bad input, and else each for itself, under MPI also when the launcher ends it or MPI neither
/// starts nor ends in time.
int launch(const LaunchOptions& options, const std::function<int(measure::LocalRanks&)>& body);
/// The same for a task of each rank's, which awaits: in simulation all ranks share a thread.
using RankTask = std::function<Task<int>(Communicator)>;
int launch_tasks(const LaunchOptions& options, const RankTask& body);

/// The same for a function of each rank's that blocks, and so cannot run in simulation: there it gives 1.
int launch_ranks(const LaunchOptions& options, const std::function<int(Communicator)>& body);

/// Runs a command of one process: prints what an exception says and gives 1.
int guarded(const std::function<int()>& body);

}  // namespace tulle::cli
