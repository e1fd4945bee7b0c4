#include "tulle/base/error.hpp"

#include "base/printable.hpp"

namespace tulle {

std::string_view to_string(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::bad_input: return "bad_input";
    case ErrorKind::unsupported: return "unsupported";
    case ErrorKind::mismatch: return "mismatch";
    case ErrorKind::bad_message: return "bad_message";
    case ErrorKind::deadline: return "deadline";
    case ErrorKind::peer_failed: return "peer_failed";
    case ErrorKind::broken: return "broken";
    case ErrorKind::system: return "system";
    case ErrorKind::excluded: return "excluded";
  }
  return "unknown";
}

Error::Error(ErrorKind kind, const std::string& message) : std::runtime_error(printable(message)), kind_(kind) {}

Error Error::at_rank(int rank) const {
  if (rank_) return *this;
  Error named(kind_, "rank " + std::to_string(rank) + ": " + what());
  named.rank_ = rank;
  named.peer_ = peer_;
  return named;
}

Error Error::with_peer(int peer) const {
  Error named = *this;
  named.peer_ = peer;
  return named;
}

}  // namespace tulle
