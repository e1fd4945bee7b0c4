// The one exception type of the library, and the ways in which things go wrong.
#pragma once

#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

namespace tulle {

/// What went wrong, so that a caller can decide what to do about it. docs/errors.md has a section for each.
enum class ErrorKind {
  bad_input,    ///< the caller's data or options: an index >= N, unsorted indices, an unknown algorithm
  unsupported,  ///< a valid request that this transport or build cannot serve
  mismatch,     ///< ranks disagree on what they are doing
  bad_message,  ///< bytes that arrived are not what the wire format allows
  deadline,     ///< an operation did not finish in time
  peer_failed,  ///< another rank failed and said so
  broken,       ///< the communicator failed earlier and cannot be used any more
  system,       ///< the operating system or MPI reported a failure
};

std::string_view to_string(ErrorKind kind);

/// Every failure that the library reports. `rank` and `peer` are set where a rank or a peer is to blame.
class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message) : std::runtime_error(message), kind_(kind) {}

  ErrorKind kind() const { return kind_; }
  std::optional<int> rank() const { return rank_; }
  std::optional<int> peer() const { return peer_; }

  /// The same error with "rank R: " in front, said once: a rank that is already named stays.
  Error at_rank(int rank) const;
  /// The same error with the peer it concerns.
  Error with_peer(int peer) const;

 private:
  ErrorKind kind_;
  std::optional<int> rank_;
  std::optional<int> peer_;
};

}  // namespace tulle
