#include "cli/common/launch.hpp"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <thread>

#include "cli/common/print.hpp"
#include "cli/common/watchdog.hpp"
#include "tulle/base/error.hpp"
#include "tulle/comm/profile_file.hpp"
#include "tulle/comm/sim.hpp"
#include "tulle/comm/tcp.hpp"
#include "tulle/comm/threads.hpp"
#if TULLE_HAVE_MPI
#include "tulle/comm/mpi.hpp"
#endif

namespace tulle::cli {
namespace {

std::optional<int> first_number(std::initializer_list<const char*> variables) {
  for (const char* variable : variables) {
    if (const char* value = std::getenv(variable)) return std::atoi(value);
  }
  return std::nullopt;
}

// A failure outside of the library, such as no memory: the other ranks have not been told, so nobody waits for them.
[[noreturn]] void fail_alone(int rank, const std::exception& error) {
  print_error(fmt::format("rank {}: {}", rank, error.what()));
  std::_Exit(1);
}

using RankBody = std::function<int(Communicator)>;

// Before the first call on it, so that none is without.
void set_deadline(Communicator& communicator, const LaunchOptions& options) {
  if (options.deadline_seconds) communicator.set_default_deadline(*options.deadline_seconds);
}

int run_rank(const Communicator& communicator, const RankBody& body) {
  try {
    const int code = body(communicator);
    return communicator.rank() == 0 ? code : 0;
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    fail_alone(communicator.rank(), error);
  }
}

int launch_threads(int ranks, const RankBody& body) {
  int code_of_leader = 0;
  run_threads(ranks, [&](Communicator& communicator) {
    const int code = run_rank(communicator, body);
    if (communicator.rank() == 0) code_of_leader = code;
  });
  return code_of_leader;
}

int launch_sim(const LaunchOptions& options, const std::function<int(measure::LocalRanks&)>& body) {
  measure::SimulatedRanks ranks({.ranks = options.ranks, .profile = options.profile, .network = options.network});
  return body(ranks);
}

int launch_sim_tasks(const LaunchOptions& options, const RankTask& body) {
  SimWorld world({.ranks = options.ranks, .profile = options.profile, .network = options.network});
  int code_of_leader = 0;
  world.run([&](Communicator& communicator) -> Task<> {
    set_deadline(communicator, options);
    const int code = co_await body(communicator);
    if (communicator.rank() == 0) code_of_leader = code;
  });
  return code_of_leader;
}

// The launcher ends the job as soon as a rank has gone: those that have spoken leave the others time to speak.
constexpr std::chrono::seconds kTimeForOthers{2};
// True where most likely all ranks have the same error, by what is equal on all of them or because one has told the
// others.
bool may_be_everybodys(const Error& error) {
  return error.kind() == ErrorKind::bad_input || error.kind() == ErrorKind::unsupported;
}

// What all have alike rank 0 alone says, and leaves, so that the launcher ends the others. One that is still there then
// has the error to itself, such as a bad variable on its host.
[[noreturn]] void leave_failed_job(int rank, const Error& error) {
  ::signal(SIGTERM, SIG_DFL);  // what there is to say is said here
  if (rank != 0 && may_be_everybodys(error)) leave_to_rank_zero();
  print_error(error.at_rank(rank).what());
  if (!may_be_everybodys(error)) std::this_thread::sleep_for(kTimeForOthers);
  std::_Exit(1);
}

// Ranks of one job may start seconds apart, however small the deadline of a call is.
constexpr double kLeastSecondsToMeet = 10;

int launch_tcp(const LaunchOptions& options, const RankBody& body) {
  TcpOptions tcp;
  if (options.deadline_seconds) tcp.deadline_seconds = std::max(kLeastSecondsToMeet, *options.deadline_seconds);
  try {
    return run_rank(connect(tcp), body);
  } catch (const Error& error) {
    leave_failed_job(this_job().rank, error);
  }
}

#if TULLE_HAVE_MPI
// MPI may take long to start and to end a healthy job, however small the deadline of a call is.
constexpr double kLeastSecondsForMpi = 30;
constexpr double kDefaultSecondsForMpi = 300;

[[noreturn]] void leave_stuck_job(int rank, const std::string& what, double seconds) {
  print_error(fmt::format("rank {}: {} within {} s; another rank may be gone", rank, what, seconds));
  std::_Exit(1);
}

// What a signal handler may read: made before it is installed.
std::string last_words;

// A launcher ends the other ranks when one has gone. They still say so, unless the command has plans of its own.
void speak_when_ended(int rank) {
  struct sigaction current {};
  if (::sigaction(SIGTERM, nullptr, &current) != 0 || current.sa_handler != SIG_DFL) return;
  last_words = fmt::format("tulle: rank {}: the launcher ended it (SIGTERM); another rank may be gone\n", rank);
  struct sigaction action {};
  action.sa_handler = [](int) {
    [[maybe_unused]] const auto written = ::write(STDERR_FILENO, last_words.data(), last_words.size());
    ::_exit(1);
  };
  ::sigaction(SIGTERM, &action, nullptr);
}

int launch_mpi(const LaunchOptions& options, const RankBody& body) {
  const int rank = this_job().rank;
  const double seconds = std::max(kLeastSecondsForMpi, options.deadline_seconds.value_or(kDefaultSecondsForMpi));
  speak_when_ended(rank);
  Watchdog watchdog(seconds, [=](const std::string& what) { leave_stuck_job(rank, what, seconds); });
  watchdog.expect("MPI did not start");
  const MpiSession session(options.progress_thread ? MPI_THREAD_MULTIPLE : MPI_THREAD_FUNNELED);
  std::optional<Communicator> communicator;
  try {
    communicator = mpi_communicator(MPI_COMM_WORLD);
    watchdog.rest();
    const int code = run_rank(*communicator, body);
    watchdog.expect("MPI did not end");
    return code;
  } catch (const Error& error) {
    leave_failed_job(rank, error);
  }
}
#else
int launch_mpi(const LaunchOptions&, const RankBody&) {
  throw Error(ErrorKind::unsupported, "this tulle was built without MPI");
}
#endif

int launch_any(const LaunchOptions& options, const RankBody& body_of_rank, const std::function<int()>& simulate) {
  const RankBody prepared_body = [&](Communicator communicator) {
    set_deadline(communicator, options);
    if (options.profile_path) load_profile(communicator, *options.profile_path);
    if (options.progress_thread) communicator.start_progress_thread();
    return body_of_rank(std::move(communicator));
  };
  return guarded([&] {
    switch (options.transport) {
      case TransportChoice::mpi: return launch_mpi(options, prepared_body);
      case TransportChoice::tcp: return launch_tcp(options, prepared_body);
      case TransportChoice::threads: return launch_threads(options.ranks, prepared_body);
      case TransportChoice::sim: return simulate();
    }
    return 1;
  });
}

}  // namespace

void leave_to_rank_zero() { std::this_thread::sleep_for(kTimeForOthers); }

Job this_job() {
  const auto size = first_number({"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"});
  const auto rank = first_number({"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK"});
  if (has_rendezvous_environment()) return {.has_rendezvous = true, .rank = first_number({"TULLE_RANK"}).value_or(0)};
  return {.is_under_mpirun = size || rank, .rank = rank.value_or(0)};
}

std::string allowed_transports() { return TULLE_HAVE_MPI ? "mpi, tcp, threads, sim" : "tcp, threads, sim"; }

TransportChoice transport_from(std::string_view name) {
  if (TULLE_HAVE_MPI && name == "mpi") return TransportChoice::mpi;
  if (name == "tcp") return TransportChoice::tcp;
  if (name == "threads") return TransportChoice::threads;
  if (name == "sim") return TransportChoice::sim;
  throw Error(ErrorKind::bad_input, fmt::format("'{}' is not one of {}", name, allowed_transports()));
}

std::string mpi_library() {
#if TULLE_HAVE_MPI
  return tulle::mpi_library();
#else
  return "";
#endif
}

int guarded(const std::function<int()>& body) {
  try {
    return body();
  } catch (const std::exception& error) {
    print_error(error.what());
    return 1;
  }
}

int launch(const LaunchOptions& options, const std::function<int(measure::LocalRanks&)>& body) {
  const RankBody body_of_rank = [&](Communicator communicator) {
    measure::OneRank ranks(std::move(communicator));
    return body(ranks);
  };
  return launch_any(options, body_of_rank, [&] { return launch_sim(options, body); });
}

int launch_ranks(const LaunchOptions& options, const std::function<int(Communicator)>& body) {
  return launch_any(options, body,
                    []() -> int { throw Error(ErrorKind::unsupported, "this command does not run in simulation"); });
}

int launch_tasks(const LaunchOptions& options, const RankTask& body) {
  const RankBody body_of_rank = [&](Communicator communicator) { return run_task(communicator, body(communicator)); };
  return launch_any(options, body_of_rank, [&] { return launch_sim_tasks(options, body); });
}

}  // namespace tulle::cli
