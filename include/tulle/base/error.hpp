// The one exception type of the library, and the ways in which things go wrong.
//
// Threads: an Error never changes after it is made, so that any thread may read and copy it. Besides Error the library
// lets out std::bad_alloc, std::system_error where no thread can be started, and what code of the caller's throws.
#pragma once

#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

#pragma GCC visibility push(default)
namespace tulle {

/// What went wrong, so that a caller can decide what to do about it. docs/errors.md has a section for each.
enum class ErrorKind {
  bad_input,    ///< the caller's data or options: an index >= N, unsorted indices, an unknown algorithm
  unsupported,  ///< a valid request that this transport or build cannot serve
  mismatch,     ///< ranks disagree on what they are doing
  bad_message,  ///< bytes that arrived are not what the wire format allows
  deadline,     ///< an operation did not finish in time
  peer_failed,  ///< another rank failed and said so, or is lost
  broken,       ///< the communicator failed earlier and cannot be used any more
  system,       ///< the operating system or MPI reported a failure
  excluded,     ///< the survivors go on without this rank, or it cannot know what they agreed on
};
/// Kinds travel as numbers: new ones are added behind this.
inline constexpr ErrorKind kLastErrorKind = ErrorKind::excluded;

std::string_view to_string(ErrorKind kind);

/// Every failure that the library reports. `rank` and `peer` are set where a rank or a peer is to blame.
/// What is not printable in `message`, such as bytes of a bad file that it quotes, is written as \xNN in what(), so
/// that a message can be shown on a terminal; '\n' and other UTF-8 stay as they are.
class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message);

  ErrorKind kind() const { return kind_; }
  std::optional<int> rank() const { return rank_; }
  std::optional<int> peer() const { return peer_; }

  /// The same error with "rank R: " in front, said once: a rank that is already named stays.
  Error at_rank(int rank) const;
  /// The same error with the peer that it concerns, in place of one that it has.
  Error with_peer(int peer) const;

 private:
  ErrorKind kind_;
  std::optional<int> rank_;
  std::optional<int> peer_;
};

}  // namespace tulle
#pragma GCC visibility pop
