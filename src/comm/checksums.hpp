// TULLE_CHECKSUM: which payloads have a CRC-32C.
#pragma once

namespace tulle {

enum class Checksums {
  off,
  on,   ///< what crosses a socket of Tulle's own
  all,  ///< also what MPI carries, and memory that is read on one host: CallOptions::checksum of every call
};

inline constexpr const char* kChecksumVariable = "TULLE_CHECKSUM";

/// "on" where the variable is not set. Throws bad_input naming it.
Checksums checksums_of_environment();

}  // namespace tulle
