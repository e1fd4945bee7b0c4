// Tulle on MPI: a communicator of Tulle's over the ranks of one of MPI's.
#pragma once

#include <mpi.h>

#include <cstdint>
#include <string>

#include "tulle/comm/communicator.hpp"

#pragma GCC visibility push(default)
namespace tulle {

/// How messages travel on MPI. REQUIRES: equal on all ranks.
struct MpiOptions {
  /// Segments of this size or more travel on their own, without being copied; smaller ones are copied into one message
  /// together with the header. Too small: a message more for every array. Too large: a copy more. Measured on freshly
  /// written data: shared memory does not care up to 16 KiB and gains from 32 KiB on, TCP from about 64 KiB on.
  std::uint64_t detach_bytes = std::uint64_t{32} << 10;
  /// The most data in one call of MPI's, whose counts are ints; what is larger is split.
  std::uint64_t chunk_bytes = std::uint64_t{1} << 30;
};

/// The ranks of `comm`, which is duplicated: messages of the caller's on it never meet Tulle's. Collective.
/// Where TULLE_PROFILE is set for rank 0, all ranks get the profile of that file, or throw what load_profile() throws.
/// Throws bad_input where the launcher's variables in the environment (OMPI_COMM_WORLD_SIZE, PMI_SIZE, PMIX_RANK ...)
/// say that it started another number of ranks than MPI_COMM_WORLD has: it is then the launcher of another MPI.
/// REQUIRES: MPI is initialized, and not finalized while operations are in flight.
Communicator mpi_communicator(MPI_Comm comm, const MpiOptions& options = {});

/// "Open MPI v4.1.4": the MPI that this program is linked with. MPI need not be initialized.
std::string mpi_library();

/// Initializes MPI where nobody has, and then also finalizes it. For programs that use MPI through Tulle alone: errors
/// that MPI would end the job for, as it does by default, become a tulle::Error. Whoever initializes MPI himself and
/// wants the same sets MPI_ERRORS_RETURN on MPI_COMM_WORLD. Open MPI is asked to send up to 256 KiB by TCP without a
/// handshake, unless its own settings say otherwise (OMPI_MCA_btl_tcp_eager_limit). Communicators that end after the
/// session do so without talking to MPI.
class MpiSession {
 public:
  /// `thread_level` as in MPI_Init_thread; a progress thread needs MPI_THREAD_MULTIPLE.
  explicit MpiSession(int thread_level = MPI_THREAD_FUNNELED);
  ~MpiSession();
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;

 private:
  bool finalizes_ = false;
};

}  // namespace tulle
#pragma GCC visibility pop
