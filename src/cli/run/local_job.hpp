// Ranks as processes of this host, started with the environment that connect() reads, and with torchrun's.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace tulle::cli {

struct LocalJobOptions {
  int ranks = 1;
  std::vector<std::string> program;  ///< name and arguments; found as a shell would
  double grace_seconds = 10;         ///< between asking ranks to end and ending them
};

/// Runs the program on all ranks and waits for them. Rank 0 has this process's standard input, the others an empty one;
/// output is theirs. Each rank has a session, and so a process group, of its own.
///
/// Signals that end, stop and continue programs go to all ranks and what they have started, SIGUSR1 and SIGUSR2 to the
/// ranks alone. When a rank fails, the others are asked to end by SIGTERM, and what happened is printed with the rank's
/// number. After that, and after SIGTERM, SIGHUP, SIGQUIT and a second SIGINT, whatever the ranks have started and is
/// still there when the grace is over is killed. The same happens where this process is killed. What a job that ends
/// well leaves running goes on.
///
/// Gives 0, or the status of the first rank that failed, or 128 plus the number of the signal that ended it. Throws
/// system where processes cannot be started.
/// REQUIRES: no other thread and no other child in this process.
int run_local_job(const LocalJobOptions& options);

}  // namespace tulle::cli
