#include "tulle/comm/mpi.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <memory>

#include "comm/mpi/launcher.hpp"
#include "comm/mpi/mpi_error.hpp"
#include "comm/mpi/mpi_transport.hpp"
#include "tulle/base/error.hpp"
#include "tulle/comm/profile_file.hpp"

namespace tulle {

namespace {

// Variables need not be the same everywhere: launchers pass them on to other nodes only when told to.
void load_profile_of_environment(MPI_Comm comm, Communicator& communicator) {
  const char* const path = std::getenv(kProfileVariable);
  int is_set = path != nullptr && *path != '\0' ? 1 : 0;
  require_mpi("MPI_Bcast", MPI_Bcast(&is_set, 1, MPI_INT, 0, comm));
  if (is_set != 0) load_profile(communicator, path != nullptr ? path : "");
}

}  // namespace

Communicator mpi_communicator(MPI_Comm comm, const MpiOptions& options) {
  constexpr std::uint64_t kSmallestChunk = 8, kLargestChunk = std::uint64_t{1} << 30;
  if (options.detach_bytes < 1 || options.chunk_bytes < kSmallestChunk || options.chunk_bytes > kLargestChunk) {
    throw Error(ErrorKind::bad_input, fmt::format("MpiOptions: detach_bytes must be 1 or more and chunk_bytes {} to {}",
                                                  kSmallestChunk, kLargestChunk));
  }
  if (mpi_is_running()) require_own_launcher();  // else the transport says what is wrong
  Communicator communicator(std::make_unique<MpiTransport>(comm, options));
  load_profile_of_environment(comm, communicator);
  return communicator;
}

std::string mpi_library() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = {};
  int length = 0;
  MPI_Get_library_version(text, &length);
  std::string version(text, static_cast<std::size_t>(length));
  version.resize(std::min(version.size(), version.find_first_of(",\n")));  // what follows is how it was configured
  for (char& character : version) character = character == '\t' ? ' ' : character;
  return version;
}

namespace {

// Open MPI shakes hands before it sends 64 KiB by TCP, and every hop of a gather then waits for two ranks to look.
// Whoever sets these by flags of mpirun or in the environment keeps what was set.
void send_without_handshakes() {
  constexpr const char* kBytes = "262144";
  setenv("OMPI_MCA_btl_tcp_eager_limit", kBytes, 0);
  setenv("OMPI_MCA_btl_tcp_rndv_eager_limit", kBytes, 0);
}

}  // namespace

MpiSession::MpiSession(int thread_level) {
  int initialized = 0, provided = MPI_THREAD_SINGLE;
  MPI_Initialized(&initialized);
  if (initialized != 0) return;
  send_without_handshakes();
  require_mpi("MPI_Init_thread", MPI_Init_thread(nullptr, nullptr, thread_level, &provided));
  finalizes_ = true;
  // MPICH reports errors of requests to the handlers of these, whichever communicator the request belongs to.
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
}

MpiSession::~MpiSession() {
  if (finalizes_ && mpi_is_running()) MPI_Finalize();
}

}  // namespace tulle
