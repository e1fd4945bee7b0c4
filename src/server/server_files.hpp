// A server's checkpoints on disk: PATH.SERVER-of-SERVERS, and beside it with .before at its end the one before.
//
// Servers write by themselves, and a job may be killed when some have written and others have not. That is why each
// keeps two files (base/generations.hpp): a job goes on from the newest step of one run that all servers have.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/generations.hpp"
#include "gradient/saved_state.hpp"

namespace tulle::server {

class ServerFiles {
 public:
  /// Where parameters `may_differ` in their steps, because steps do not wait for everybody, what a job left behind when
  /// it was stopped need not be of one step.
  /// `run`: this job's number.
  ServerFiles(int server, int servers, bool may_differ, std::uint64_t run)
      : server_(server), servers_(servers), may_differ_(may_differ), run_(run) {}

  /// The file appears whole or not at all. Once all servers have one, sets of other numbers of servers are removed.
  /// Throws system.
  void write(const std::string& path, gradient::SavedState state);

  bool is_there(const std::string& path) const;
  /// What this server needs: its own state, or those of all where another number of servers has saved; of several sets
  /// those of the latest step. `every`: steps between two files. Throws bad_input.
  struct Read {
    std::vector<gradient::SavedState> states;
    std::string note;  ///< why a newer file is left out; empty: there is none
  };
  Read read(const std::string& path, std::uint64_t every);

 private:
  int server_, servers_;
  bool may_differ_;
  std::uint64_t run_;
  GenerationWriter writer_;
};

}  // namespace tulle::server
