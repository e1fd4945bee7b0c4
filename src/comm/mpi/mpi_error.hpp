// What MPI says when a call fails. The duplicated communicator returns errors instead of ending the job.
#pragma once

#include <mpi.h>

#include <string>
#include <string_view>

namespace tulle {

/// "MPI_Isend: MPI_ERR_COMM: invalid communicator"
std::string describe_mpi_error(std::string_view call, int code);

/// Throws system unless `code` is MPI_SUCCESS.
void require_mpi(std::string_view call, int code);

/// True between MPI_Init and MPI_Finalize.
bool mpi_is_running();

/// Throws bad_input where MPI has ended or was never initialized: most calls would then end the process.
void require_mpi_is_running();

}  // namespace tulle
