#include "cli/launch.hpp"

#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "tulle/base/error.hpp"
#include "tulle/comm/profile_file.hpp"
#include "tulle/comm/sim.hpp"
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

void print_error(std::string_view message) {
  std::fflush(stdout);
  fmt::print(stderr, "tulle: {}\n", message);
  std::fflush(stderr);
}

// A failure outside of the library, such as no memory: the other ranks have not been told, so nobody waits for them.
[[noreturn]] void fail_alone(int rank, const std::exception& error) {
  print_error(fmt::format("rank {}: {}", rank, error.what()));
  std::_Exit(1);
}

using RankBody = std::function<int(Communicator)>;

int run_rank(Communicator communicator, const RankBody& body) {
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

int launch_sim(const LaunchOptions& options, const std::function<int(Track&)>& body) {
  SimTrack track({.ranks = options.ranks, .profile = options.profile, .network = options.network});
  return body(track);
}

int launch_sim_tasks(const LaunchOptions& options, const RankTask& body) {
  SimWorld world({.ranks = options.ranks, .profile = options.profile, .network = options.network});
  int code_of_leader = 0;
  world.run([&](Communicator& communicator) -> Task<> {
    const int code = co_await body(communicator, linear::Waiting::awaits);
    if (communicator.rank() == 0) code_of_leader = code;
  });
  return code_of_leader;
}

#if TULLE_HAVE_MPI
// The library tells all ranks of a failure, so each comes here with an error and rank 0 prints its own. The others
// give it time: mpirun ends the job as soon as one of them has gone.
[[noreturn]] void leave_failed_job(int rank, const Error& error) {
  if (rank == 0) {
    print_error(error.what());
  } else {
    std::this_thread::sleep_for(std::chrono::seconds(2));
  }
  std::_Exit(1);
}

int launch_mpi(const RankBody& body) {
  const MpiSession session;
  std::optional<Communicator> communicator;
  try {
    communicator = mpi_communicator(MPI_COMM_WORLD);
    return run_rank(*communicator, body);
  } catch (const Error& error) {
    leave_failed_job(this_job().rank, error);
  }
}
#else
int launch_mpi(const RankBody&) {
  throw Error(ErrorKind::unsupported, "this tulle was built without MPI");
}
#endif

int launch_any(const LaunchOptions& options, const RankBody& body_of_rank, const std::function<int()>& simulate) {
  const RankBody body_with_profile = [&](Communicator communicator) {
    if (options.profile_path) load_profile(communicator, *options.profile_path);
    return body_of_rank(std::move(communicator));
  };
  return guarded([&] {
    switch (options.transport) {
      case TransportChoice::mpi: return launch_mpi(body_with_profile);
      case TransportChoice::threads: return launch_threads(options.ranks, body_with_profile);
      case TransportChoice::sim: return simulate();
    }
    return 1;
  });
}

}  // namespace

Job this_job() {
  const auto size = first_number({"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"});
  const auto rank = first_number({"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK"});
  return {.is_under_mpirun = size || rank, .rank = rank.value_or(0)};
}

std::string allowed_transports() { return TULLE_HAVE_MPI ? "mpi, threads, sim" : "threads, sim"; }

TransportChoice transport_from(std::string_view name) {
  if (TULLE_HAVE_MPI && name == "mpi") return TransportChoice::mpi;
  if (name == "threads") return TransportChoice::threads;
  if (name == "sim") return TransportChoice::sim;
  throw Error(ErrorKind::bad_input, fmt::format("'{}' is not one of {}", name, allowed_transports()));
}

std::string mpi_library() {
#if TULLE_HAVE_MPI
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = {};
  int length = 0;
  MPI_Get_library_version(text, &length);
  std::string version(text, static_cast<std::size_t>(length));
  version.resize(std::min(version.size(), version.find_first_of(",\n")));  // what follows is how it was configured
  for (char& character : version) character = character == '\t' ? ' ' : character;
  return version;
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

int launch(const LaunchOptions& options, const std::function<int(Track&)>& body) {
  const RankBody body_of_rank = [&](Communicator communicator) {
    RankTrack track(std::move(communicator));
    return body(track);
  };
  return launch_any(options, body_of_rank, [&] { return launch_sim(options, body); });
}

int launch_tasks(const LaunchOptions& options, const RankTask& body) {
  const RankBody body_of_rank = [&](Communicator communicator) {
    return linear::run_blocking(body(std::move(communicator), linear::Waiting::blocks));
  };
  return launch_any(options, body_of_rank, [&] { return launch_sim_tasks(options, body); });
}

}  // namespace tulle::cli
