#include "comm/mpi/mpi_error.hpp"

#include <fmt/format.h>

#include "tulle/base/error.hpp"

namespace tulle {

std::string describe_mpi_error(std::string_view call, int code) {
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  if (MPI_Error_string(code, text, &length) != MPI_SUCCESS) return fmt::format("{}: MPI error {}", call, code);
  return fmt::format("{}: {}", call, std::string_view(text, static_cast<std::size_t>(length)));
}

void require_mpi(std::string_view call, int code) {
  if (code != MPI_SUCCESS) throw Error(ErrorKind::system, describe_mpi_error(call, code));
}

bool mpi_is_running() {
  int initialized = 0, finalized = 0;
  MPI_Initialized(&initialized);
  MPI_Finalized(&finalized);
  return initialized != 0 && finalized == 0;
}

void require_mpi_is_running() {
  int initialized = 0, finalized = 0;
  MPI_Initialized(&initialized);
  MPI_Finalized(&finalized);
  if (finalized != 0) {
    throw Error(
        ErrorKind::bad_input,
        "MPI_Finalize has been called, and this travels by MPI: make the MpiSession before everything that uses "
        "it, so that it ends last");
  }
  if (initialized == 0) throw Error(ErrorKind::bad_input, "this needs MPI to be initialized, see MpiSession");
}

}  // namespace tulle
