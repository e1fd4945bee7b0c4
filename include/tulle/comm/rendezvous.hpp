// How the ranks of a job find each other: an exchange of a few bytes through something that all of them already have.
//
// Threads: a rendezvous is used by one thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#pragma GCC visibility push(default)
namespace tulle {

/// An allgather of small byte strings among the ranks of a job. The transport `tcp` asks for one when it connects and
/// never again. Derive from it to use what a job already has: a store, another library's process group, MPI.
class Rendezvous {
 public:
  virtual ~Rendezvous() = default;

  /// REQUIRES: 0 <= rank() < size(), the same size on all ranks, each rank once.
  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// Gives every rank what each rank passed, by rank. Collective; blocks. Throws where somebody does not come in time,
  /// naming who. The strings hold any bytes, also zeros; a few hundred of them.
  virtual std::vector<std::string> allgather(const std::string& mine) = 0;
  /// A host that all ranks can reach: the route to it says which of this host's addresses the others are offered.
  /// Empty: nobody knows, and all addresses are offered.
  virtual std::string meeting_host() const { return {}; }
  /// Called now and then between allgather() and the moment at which all ranks are connected. Throws where a rank is
  /// known to be gone, so that nobody waits for it until the deadline.
  virtual void require_all_there() const {}
};

/// The name of this process's job, which two jobs that meet at one place differ in: TULLE_JOB, which `tulle run` sets,
/// else TORCHELASTIC_RUN_ID, else a scheduler's: SLURM_JOB_ID and SLURM_STEP_ID, PBS_JOBID, LSB_JOBID and LSB_JOBINDEX,
/// FLUX_JOB_ID. It begins with the variable's name. Empty where none is set.
std::string job_from_environment();

struct DirectoryRendezvousOptions {
  std::string path = {};  ///< exists, and all ranks see it
  int rank = 0;
  int size = 1;
  double deadline_seconds = 60;
  std::string job = {};  ///< empty: job_from_environment()
};
/// Files in a directory, which only this user may read: each rank writes `card.<round>.<rank>` and then
/// `seen.<round>.<rank>`, which says what it has read; a job that has a name adds its checksum. Files that an earlier
/// job left there do no harm; no file is ever removed. Throws bad_input for options that make no sense, system where a
/// file cannot be written, mismatch where two processes are the same rank, deadline where ranks are missing, naming
/// them.
std::unique_ptr<Rendezvous> directory_rendezvous(const DirectoryRendezvousOptions& options);

struct AddressRendezvousOptions {
  std::string host = {};  ///< of rank 0: a name or an address
  std::uint16_t port = 0;
  int rank = 0;
  int size = 1;
  double deadline_seconds = 60;
  std::string job = {};  ///< all ranks give the same; empty: job_from_environment()
};
/// Rank 0 listens at an address while the ranks meet, and not longer. Strangers that connect there are hung up on,
/// ranks of another job are told of both jobs. A rank that was started again while the others wait takes the place of
/// its dead one. A host name that cannot be resolved yet is asked for again until the deadline. Throws as
/// directory_rendezvous() does; where ranks are missing, those that came are told who.
std::unique_ptr<Rendezvous> address_rendezvous(const AddressRendezvousOptions& options);

/// An address rendezvous as the environment has it: TULLE_ADDRESS (host:port, of rank 0), TULLE_RANK and TULLE_SIZE;
/// what of these is not set is taken from torchrun's MASTER_ADDR, MASTER_PORT, RANK and WORLD_SIZE. MASTER_PORT itself
/// is torch's own, so the port is 1000 above it, or 1000 below where that would be none. A job of one rank needs no
/// address. Throws bad_input naming the variable that is missing or wrong.
std::unique_ptr<Rendezvous> environment_rendezvous(double deadline_seconds = 60);
/// True where TULLE_RANK is set: the process was started as a rank of a job without MPI.
bool has_rendezvous_environment();

}  // namespace tulle
#pragma GCC visibility pop
