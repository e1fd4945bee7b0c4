// Whether the launcher that started this process is one of the MPI that it is linked with. A launcher of another MPI
// starts so many processes, each of which is a job of one rank: all would do the whole work, and write the same files.
#pragma once

#include <optional>
#include <string>

namespace tulle {

/// What the environment says of the launcher that does not agree with `size`, of MPI_COMM_WORLD; or nothing. No call of
/// MPI.
std::optional<std::string> foreign_launcher(int size);

/// Throws bad_input, with what the user can do, where MPI_COMM_WORLD is not what the launcher started. On all ranks.
void require_own_launcher();

}  // namespace tulle
