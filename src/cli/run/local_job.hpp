// Ranks as processes of this host, started with the environment that connect() reads, and with torchrun's.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace tulle::cli {

struct LocalJobOptions {
  int ranks = 1;
  std::vector<std::string> program;  ///< name and arguments; found as a shell would
  double grace_seconds = 5;          ///< between asking ranks to end and ending them
};

/// Runs the program on all ranks and waits for them. Rank 0 has this process's standard input, the others an empty one;
/// output is theirs. Signals that end programs, and SIGUSR1 and SIGUSR2, go to all ranks. When a rank fails, the others
/// are ended, and what happened is printed with the rank's number. Gives 0, or the status of the first rank that
/// failed, or 128 plus the number of the signal that ended it. Throws system where processes cannot be started.
/// REQUIRES: no other thread and no other child in this process.
int run_local_job(const LocalJobOptions& options);

}  // namespace tulle::cli
