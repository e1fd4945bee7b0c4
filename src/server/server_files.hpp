// A server's checkpoints on disk: PATH.SERVER-of-SERVERS, and beside it with .before at its end the one before.
//
// Servers write by themselves, and a job may be killed when some have written and others have not. That is why each
// keeps two files: a job goes on from the newest step that all servers have.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gradient/saved_state.hpp"

namespace tulle::server {

class ServerFiles {
 public:
  /// Where parameters `may_differ` in their steps, because steps do not wait for everybody, what a job left behind when
  /// it was stopped need not be of one step.
  ServerFiles(int server, int servers, bool may_differ) : server_(server), servers_(servers), may_differ_(may_differ) {}

  /// The file appears whole or not at all. Once all servers have one, sets of other numbers of servers are removed.
  /// Throws system.
  void write(const std::string& path, const gradient::SavedState& state);

  bool is_there(const std::string& path) const;
  /// The states that this server needs: its own, or those of all where another number of servers has saved; of several
  /// sets those of the latest step. `every`: steps between two files. Throws bad_input.
  std::vector<gradient::SavedState> read(const std::string& path, std::uint64_t every);

 private:
  int server_, servers_;
  bool may_differ_;
  std::optional<std::uint64_t> step_on_disk_;  ///< of PATH, where it is of this run
  bool goes_on_from_before_ = false;           ///< and PATH is of a later step, which others do not have
};

}  // namespace tulle::server
