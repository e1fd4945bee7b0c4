#include "comm/mpi/launcher.hpp"

#include <fmt/format.h>
#include <charconv>
#include <cstdlib>
#include <string_view>

#include "comm/mpi/mpi_error.hpp"
#include "tulle/base/error.hpp"
#include "tulle/comm/mpi.hpp"

namespace tulle {
namespace {

std::optional<int> number_in(const char* variable) {
  const char* const value = std::getenv(variable);
  if (value == nullptr) return std::nullopt;
  const std::string_view text(value);
  int number = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), number);
  return code == std::errc() && end == text.data() + text.size() ? std::optional(number) : std::nullopt;
}

// Open MPI's mpirun; Hydra, which is MPICH's and Intel's; MVAPICH's.
constexpr const char* kSizes[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE"};
// Ranks alone are told by PMIx, and the size of a step by Slurm, also to shells that only start launchers.
constexpr const char* kPmixRank = "PMIX_RANK";
constexpr const char* kSlurmSize = "SLURM_STEP_NUM_TASKS";

}  // namespace

std::optional<std::string> foreign_launcher(int size) {
  bool is_known = false;
  for (const char* const variable : kSizes) {
    const std::optional<int> started = number_in(variable);
    is_known |= started.has_value();
    if (started && *started != size) return fmt::format("{} says that the launcher started {}", variable, *started);
  }
  const std::optional<int> rank = number_in(kPmixRank);
  if (rank && *rank >= size) return fmt::format("{} says that this is rank {}", kPmixRank, *rank);
  if (is_known || rank) return std::nullopt;
  const std::optional<int> tasks = number_in(kSlurmSize);
  if (tasks && *tasks > 1 && size == 1) return fmt::format("{} says that srun started {}", kSlurmSize, *tasks);
  return std::nullopt;
}

void require_own_launcher() {
  int size = 0;
  require_mpi("MPI_Comm_size", MPI_Comm_size(MPI_COMM_WORLD, &size));
  const std::optional<std::string> reason = foreign_launcher(size);
  if (!reason) return;
  throw Error(
      ErrorKind::bad_input,
      fmt::format("MPI has {} rank{}, and {}: is it the launcher of another MPI? This program uses {}: start it "
                  "with that one's mpirun (on Debian mpirun.openmpi or mpirun.mpich), or with srun --mpi=pmix "
                  "or pmi2; where the variable is left from an outer job, unset it",
                  size, size == 1 ? "" : "s", *reason, mpi_library()));
}

}  // namespace tulle
