#include "cli/run/local_job.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <initializer_list>
#include <optional>
#include <utility>

#include "cli/common/print.hpp"
#include "tulle/base/error.hpp"

namespace tulle::cli {
namespace {

// How it works. Three generations: the process that the user started *watches* one of its own, which *leads* the job,
// and the ranks are that one's children, each with a session of its own. Signals travel from the first to the second
// and from there to whole sessions. The first two adopt what their descendants leave behind, so that whoever ends the
// job ends everything that it started. Where the leader is killed the watcher ends the rest; where the watcher is, the
// kernel tells the leader.

using Clock = std::chrono::steady_clock;

constexpr int kForwarded[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGTSTP, SIGCONT};
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

Clock::time_point after(double seconds) {
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

// Signals that ask a program to end. Of SIGINT, which a user may repeat, the second counts.
bool asks_to_end(int signal) { return signal == SIGTERM || signal == SIGHUP || signal == SIGQUIT; }

// Those of this process, and those that its descendants have left behind.
std::vector<pid_t> children() {
  std::vector<pid_t> found;
  std::error_code failure;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", failure)) {
    const std::string name = entry.path().filename();
    pid_t process = 0;
    if (std::from_chars(name.data(), name.data() + name.size(), process).ptr != name.data() + name.size()) continue;
    std::FILE* const file = std::fopen((entry.path() / "stat").c_str(), "re");
    if (file == nullptr) continue;
    char line[512] = {};
    const std::size_t length = std::fread(line, 1, sizeof line - 1, file);
    std::fclose(file);
    const std::string_view text(line, length);  // the name, in brackets, may hold anything
    const std::size_t behind_name = text.rfind(')');
    int parent = 0;
    if (behind_name != text.npos && std::sscanf(line + behind_name, ") %*c %d", &parent) == 1 && parent == getpid()) {
      found.push_back(process);
    }
  }
  return found;
}

// To the child and, where it leads a group, to all of that.
void tell_with_group(pid_t child, int signal) {
  const pid_t to = getpgid(child) == child ? -child : child;
  kill(to, signal);
  if (signal == SIGTERM) kill(to, SIGCONT);  // one that is stopped would not hear
}

// Ends whatever this process has below it: at first it asks.
void end_children(Clock::time_point kill_time) {
  for (const pid_t child : children()) tell_with_group(child, SIGTERM);
  for (;;) {
    int status = 0;
    const pid_t ended = waitpid(-1, &status, WNOHANG);
    if (ended < 0 && errno == ECHILD) return;
    if (ended > 0) continue;
    if (Clock::now() >= kill_time) {
      for (const pid_t child : children()) tell_with_group(child, SIGKILL);
    }
    timespec pause = {0, 10'000'000};
    nanosleep(&pause, nullptr);
  }
}

// This process goes when its parent does, asked or not.
void die_with_parent(pid_t parent, int signal) {
  prctl(PR_SET_PDEATHSIG, signal);
  if (getppid() != parent) raise(signal);  // too late to be told
}

sigset_t watched_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGCHLD);
  for (const int signal : kForwarded) {
    struct sigaction current {};
    const bool is_ignored = sigaction(signal, nullptr, &current) == 0 && current.sa_handler == SIG_IGN;
    if (!is_ignored) sigaddset(&signals, signal);  // nohup means it
  }
  return signals;
}

std::string describe_end(int status) {
  if (WIFSIGNALED(status)) {
    return fmt::format("was ended by signal {} ({})", WTERMSIG(status), strsignal(WTERMSIG(status)));
  }
  return fmt::format("ended with status {}", WEXITSTATUS(status));
}

int exit_code(int status) { return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status); }

// That nobody else has and nobody guesses.
std::string new_job_name() {
  std::array<std::uint64_t, 2> number = {};
  if (getrandom(number.data(), sizeof number, 0) != sizeof number) throw_errno("getrandom");
  return fmt::format("run-{}-{:016x}{:016x}", getpid(), number[0], number[1]);
}

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
    if (pipe2(exec_failures_, O_CLOEXEC | O_NONBLOCK) != 0) throw_errno("pipe");
    sigprocmask(SIG_BLOCK, &signals_, &signals_before_);
  }
  ~LocalJob() { sigprocmask(SIG_SETMASK, &signals_before_, nullptr); }
  LocalJob(const LocalJob&) = delete;
  LocalJob& operator=(const LocalJob&) = delete;

  /// In the process that leads the job.
  int run() {
    setsid();  // what a terminal sends comes from the watcher
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    start_all();
    while (std::ranges::any_of(processes_, [](pid_t process) { return process != 0; })) {
      handle_next_signal();
      reap();
      if (kill_time_ && Clock::now() >= *kill_time_) tell_all(SIGKILL);
    }
    if (kill_time_) end_children(*kill_time_);
    return code_;
  }

  /// In the process that was started: what its child, which leads the job, comes to.
  int watch(pid_t leader) {
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    for (;;) {
      const int signal = next_signal();
      if (signal > 0 && signal != SIGCHLD) kill(leader, signal);
      if (signal == SIGTSTP) {
        raise(SIGSTOP);
        kill(leader, SIGCONT);
      }
      int status = 0;
      if (waitpid(leader, &status, WNOHANG) <= 0) continue;
      if (WIFSIGNALED(status)) {
        fmt::print(stderr, "tulle run: what led the job {}\n", describe_end(status));
        end_children(after(options_.grace_seconds));
      }
      return exit_code(status);
    }
  }

 private:
  void start_all() {
    const pid_t leader = getpid();
    for (int rank = 0; rank < options_.ranks; ++rank) {
      const pid_t process = fork();
      if (process < 0) {
        const int code = errno;
        end_children(Clock::now());
        errno = code;
        throw_errno("fork");
      }
      if (process == 0) become(rank, leader);
      processes_.push_back(process);
    }
  }

  [[noreturn]] void become(int rank, pid_t leader) const {
    // A session of its own: what it starts can be told together, and a terminal can be read all the same.
    setsid();
    die_with_parent(leader, SIGTERM);
    sigprocmask(SIG_SETMASK, &signals_before_, nullptr);
    const std::string number = std::to_string(rank), size = std::to_string(options_.ranks);
    set_variables({{"TULLE_RANK", number}, {"TULLE_SIZE", size}, {"TULLE_ADDRESS", address_}, {"TULLE_JOB", job_}});
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
    const int reason = errno;
    [[maybe_unused]] const auto written = write(exec_failures_[1], &reason, sizeof reason);
    _exit(kCannotExecute);
  }

  int next_signal() const {
    timespec longest = {0, 100'000'000};  // for the end of the grace
    return sigtimedwait(&signals_, nullptr, &longest);
  }

  void handle_next_signal() {
    const int signal = next_signal();
    if (signal <= 0 || signal == SIGCHLD) return;
    tell_all(signal == SIGTSTP ? SIGSTOP : signal);  // what a session without a terminal gets of SIGTSTP is nothing
    const bool insists = signal == SIGINT && std::exchange(was_interrupted_, true);
    if (insists) tell_all(SIGTERM);
    if (asks_to_end(signal) || insists) begin_grace();
  }

  void begin_grace() {
    if (!kill_time_) kill_time_ = after(options_.grace_seconds);
  }

  // Not only of ranks: also what they left behind.
  void reap() {
    int status = 0;
    for (pid_t ended = waitpid(-1, &status, WNOHANG); ended > 0; ended = waitpid(-1, &status, WNOHANG)) {
      const auto process = std::ranges::find(processes_, ended);
      if (process == processes_.end()) continue;
      *process = 0;
      if (status != 0 && code_ == 0) fail(static_cast<std::size_t>(process - processes_.begin()), status);
    }
  }

  void fail(std::size_t rank, int status) {
    code_ = exit_code(status);
    int reason = 0;
    if (read(exec_failures_[0], &reason, sizeof reason) == sizeof reason) {
      fmt::print(stderr, "tulle run: '{}': {}\n", options_.program[0], std::strerror(reason));
    }
    fmt::print(stderr, "tulle run: rank {} ({}) {}\n", rank, options_.program[0], describe_end(status));
    tell_all(SIGTERM);
    begin_grace();
  }

  // As a terminal does, to all that a rank has started; signals that mean something to a program alone, to the rank.
  void tell_all(int signal) const {
    for (const pid_t process : processes_) {
      if (process == 0) continue;
      if (signal == SIGUSR1 || signal == SIGUSR2) {
        kill(process, signal);
      } else {
        tell_with_group(process, signal);
      }
    }
  }

  const LocalJobOptions& options_;
  std::string address_;
  std::string job_ = new_job_name();
  std::string torch_port_;  ///< where torch's rank 0 listens
  sigset_t signals_;
  sigset_t signals_before_ = {};
  int exec_failures_[2] = {-1, -1};  ///< why ranks could not become the program
  std::vector<pid_t> processes_;     ///< by rank; 0: has ended
  std::optional<Clock::time_point> kill_time_;
  bool was_interrupted_ = false;
  int code_ = 0;
};

}  // namespace

int run_local_job(const LocalJobOptions& options) {
  LocalJob job(options);
  std::fflush(nullptr);  // what is in buffers is said once
  const pid_t watcher = getpid();
  const pid_t leader = fork();
  if (leader < 0) throw_errno("fork");
  if (leader != 0) return job.watch(leader);
  die_with_parent(watcher, SIGTERM);
  try {
    _exit(job.run());
  } catch (const std::exception& error) {
    print_error(error.what());
    _exit(1);
  }
}

}  // namespace tulle::cli
