// Calls on a communicator after MPI has ended: an error on each rank. With most builds of MPI any call of MPI's own
// would end the process there.
#include <mpi.h>

#include <cstdio>
#include <functional>
#include <string_view>

#include "tulle/comm/control.hpp"
#include "tulle/comm/mpi.hpp"

namespace {

// One rank alone needs no messages, and so no MPI.
bool is_alone = false;

// True where `call` throws an error that names the cause.
bool is_refused(const char* name, const std::function<void()>& call) {
  try {
    call();
    if (!is_alone) std::fprintf(stderr, "%s: no error\n", name);
    return is_alone;
  } catch (const tulle::Error& error) {
    if (std::string_view(error.what()).find("MPI_Finalize has been called") != std::string_view::npos) return true;
    std::fprintf(stderr, "%s: %s\n", name, error.what());
    return false;
  }
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  tulle::Communicator first = tulle::mpi_communicator(MPI_COMM_WORLD);
  tulle::Communicator second = tulle::mpi_communicator(MPI_COMM_WORLD);
  tulle::Communicator third = tulle::mpi_communicator(MPI_COMM_WORLD);
  is_alone = first.size() == 1;
  tulle::barrier(first);
  auto unfinished = tulle::ibarrier(third);
  MPI_Finalize();
  bool all = is_refused("barrier", [&] { tulle::barrier(first); });
  all &= is_refused("barrier on what is broken", [&] { tulle::barrier(first); });
  all &= is_refused("split", [&] { (void)second.split(0); });
  all &= is_refused("what had begun before", [&] { unfinished.wait(); });
  all &= is_refused("another communicator", [] { (void)tulle::mpi_communicator(MPI_COMM_WORLD); });
  return all ? 0 : 1;
}
