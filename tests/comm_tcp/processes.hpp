// Ranks as processes, for tests that kill, stop or fork them.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <string>
#include <vector>

#include "base/temporary_directory.hpp"
#include "comm/tcp/clock.hpp"
#include "tulle/base/error.hpp"

namespace tulle::testing {

/// What a rank has to complain about; empty: nothing.
using RankBody = std::function<std::string(int rank)>;

/// Runs `body` in processes of their own and gives how each ended: its exit code, or minus the signal that ended it. A
/// complaint is printed and becomes exit code 1. Whoever is not done after `seconds` is killed.
inline std::vector<int> run_processes(int ranks, double seconds, const RankBody& body) {
  std::vector<pid_t> processes;
  for (int rank = 0; rank < ranks; ++rank) {
    const pid_t process = fork();
    if (process == 0) {
      std::string complaint;
      try {
        complaint = body(rank);
      } catch (const std::exception& error) {
        complaint = error.what();
      }
      if (!complaint.empty()) fprintf(stderr, "rank %d: %s\n", rank, complaint.c_str());
      _exit(complaint.empty() ? 0 : 1);
    }
    processes.push_back(process);
  }
  std::vector<int> ends;
  const Deadline deadline(seconds);
  for (const pid_t process : processes) {
    int status = 0;
    while (waitpid(process, &status, WNOHANG) == 0) {
      if (deadline.has_passed()) kill(process, SIGKILL);
      usleep(2000);
    }
    ends.push_back(WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status));
  }
  return ends;
}

}  // namespace tulle::testing
