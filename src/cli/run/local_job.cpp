#include "cli/run/local_job.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <optional>
#include <utility>

#include "tulle/base/error.hpp"

namespace tulle::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kForwarded[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};
constexpr int kCannotExecute = 127;  // as shells have it

[[noreturn]] void throw_errno(const char* call) {
  throw Error(ErrorKind::system, fmt::format("{}: {}", call, std::strerror(errno)));
}

// A port of the loopback that is free now. Another program may take it before rank 0 does, which then says so.
int free_port() {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) throw_errno("socket");
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  const bool found = ::bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0 &&
                     ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) == 0;
  ::close(fd);
  if (!found) throw_errno("bind");
  return ntohs(address.sin_port);
}

sigset_t watched_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGCHLD);
  for (const int signal : kForwarded) sigaddset(&signals, signal);
  return signals;
}

std::string describe_end(int status) {
  if (WIFSIGNALED(status)) {
    return fmt::format("was ended by signal {} ({})", WTERMSIG(status), strsignal(WTERMSIG(status)));
  }
  return fmt::format("ended with status {}", WEXITSTATUS(status));
}

int exit_code(int status) { return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status); }

void set_variables(std::initializer_list<std::pair<const char*, std::string>> variables) {
  for (const auto& [name, value] : variables) setenv(name, value.c_str(), 1);
}

class LocalJob {
 public:
  explicit LocalJob(const LocalJobOptions& options)
      : options_(options), address_(fmt::format("127.0.0.1:{}", free_port())), signals_(watched_signals()) {
    do {
      torch_port_ = std::to_string(free_port());
    } while (address_.ends_with(":" + torch_port_));
    sigprocmask(SIG_BLOCK, &signals_, &signals_before_);
  }
  ~LocalJob() { sigprocmask(SIG_SETMASK, &signals_before_, nullptr); }
  LocalJob(const LocalJob&) = delete;
  LocalJob& operator=(const LocalJob&) = delete;

  int run() {
    start_all();
    while (std::ranges::any_of(processes_, [](pid_t process) { return process != 0; })) {
      handle_next_signal();
      reap();
      if (kill_time_ && Clock::now() >= *kill_time_) tell_all(SIGKILL);
    }
    return code_;
  }

 private:
  void start_all() {
    for (int rank = 0; rank < options_.ranks; ++rank) {
      const pid_t process = fork();
      if (process < 0) {
        const int code = errno;
        tell_all(SIGKILL);
        errno = code;
        throw_errno("fork");
      }
      if (process == 0) become(rank);
      processes_.push_back(process);
    }
  }

  [[noreturn]] void become(int rank) const {
    prctl(PR_SET_PDEATHSIG, SIGTERM);  // a job does not outlive whoever started it
    sigprocmask(SIG_SETMASK, &signals_before_, nullptr);
    const std::string number = std::to_string(rank), size = std::to_string(options_.ranks);
    set_variables({{"TULLE_RANK", number}, {"TULLE_SIZE", size}, {"TULLE_ADDRESS", address_}});
    set_variables({{"RANK", number}, {"LOCAL_RANK", number}, {"WORLD_SIZE", size}, {"LOCAL_WORLD_SIZE", size}});
    set_variables({{"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", torch_port_}});
    if (rank != 0) {
      const int nothing = open("/dev/null", O_RDONLY);
      if (nothing >= 0) dup2(nothing, STDIN_FILENO);
    }
    std::vector<char*> arguments;
    for (const std::string& word : options_.program) arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);
    execvp(arguments[0], arguments.data());
    if (rank == 0) fmt::print(stderr, "tulle run: '{}': {}\n", options_.program[0], std::strerror(errno));
    _exit(kCannotExecute);
  }

  void handle_next_signal() {
    siginfo_t info = {};
    timespec longest = {0, 100'000'000};  // for the end of the grace
    const int signal = sigtimedwait(&signals_, &info, &longest);
    // What a terminal sends goes to the ranks by itself.
    const bool has_reached_ranks = info.si_code == SI_KERNEL;
    if (signal > 0 && signal != SIGCHLD && !has_reached_ranks) tell_all(signal);
  }

  void reap() {
    for (std::size_t rank = 0; rank < processes_.size(); ++rank) {
      int status = 0;
      if (processes_[rank] == 0 || waitpid(processes_[rank], &status, WNOHANG) <= 0) continue;
      processes_[rank] = 0;
      if (status != 0 && code_ == 0) fail(rank, status);
    }
  }

  void fail(std::size_t rank, int status) {
    code_ = exit_code(status);
    fmt::print(stderr, "tulle run: rank {} ({}) {}\n", rank, options_.program[0], describe_end(status));
    tell_all(SIGTERM);
    kill_time_ = Clock::now() +
                 std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(options_.grace_seconds));
  }

  void tell_all(int signal) const {
    for (const pid_t process : processes_) {
      if (process == 0) continue;
      kill(process, signal);
      if (signal == SIGTERM) kill(process, SIGCONT);  // one that is stopped would not hear
    }
  }

  const LocalJobOptions& options_;
  std::string address_;
  std::string torch_port_;  ///< where torch's rank 0 listens
  sigset_t signals_;
  sigset_t signals_before_ = {};
  std::vector<pid_t> processes_;  ///< by rank; 0: has ended
  std::optional<Clock::time_point> kill_time_;
  int code_ = 0;
};

}  // namespace

int run_local_job(const LocalJobOptions& options) { return LocalJob(options).run(); }

}  // namespace tulle::cli
