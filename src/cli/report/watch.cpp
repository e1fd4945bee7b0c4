// tulle watch: a running job in the terminal, from its stats lines.

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>

#include "cli/commands.hpp"
#include "cli/common/launch.hpp"
#include "cli/common/print.hpp"
#include "cli/report/job_stats.hpp"
#include "cli/report/line_follower.hpp"
#include "cli/report/watch_view.hpp"
#include "tulle/base/error.hpp"

namespace tulle::cli {
namespace {

struct WatchFlags {
  std::string file;
  double interval_seconds = 1;
  bool once = false;
};

std::atomic<bool> is_interrupted = false;
static_assert(std::atomic<bool>::is_always_lock_free);  // a signal handler sets it

// The first of the variables that is set, as the C library would look for a locale.
std::string locale_name() {
  for (const char* variable : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const char* value = std::getenv(variable);
    if (value != nullptr && *value != '\0') return value;
  }
  return "";
}

bool is_drawable() {
  const char* terminal = std::getenv("TERM");
  return ::isatty(STDOUT_FILENO) == 1 && terminal != nullptr && std::string_view(terminal) != "dumb";
}

WatchStyle this_terminal() {
  winsize size{};
  const std::string locale = locale_name();
  const bool has_size = ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return {.columns = has_size ? size.ws_col : std::size_t{80},
          .has_unicode = locale.find("UTF-8") != std::string::npos || locale.find("utf8") != std::string::npos,
          .has_colour = std::getenv("NO_COLOR") == nullptr};
}

// Draws frames over each other and gives the terminal back as it was.
class Screen {
 public:
  Screen() { fmt::print("\033[?25l"); }
  ~Screen() { fmt::print("\033[?25h"); }
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  void draw(const std::vector<std::string>& lines) {
    if (height_ > 0) fmt::print("\033[{}A", height_);
    for (const std::string& line : lines) fmt::print("\r\033[K{}\n", line);
    fmt::print("\033[J");
    height_ = lines.size();
    std::fflush(stdout);
  }

 private:
  std::size_t height_ = 0;
};

// Reads lines as they come and shows the job at every interval.
class Watch {
 public:
  explicit Watch(const WatchFlags& flags)
      : flags_(flags), lines_(flags.file.empty() ? std::nullopt : std::optional(flags.file)) {
    if (is_drawable()) screen_.emplace();
  }

  void run() {
    do {
      take(lines_.read(std::min(0.1, flags_.interval_seconds)));
      if (is_due()) show();
    } while (goes_on());
    if (screen_ || job_.is_empty() || has_news()) show();
    if (skipped_ > 0) print_error(fmt::format("{} line(s) were not stats and were skipped", skipped_));
  }

 private:
  using Clock = std::chrono::steady_clock;

  void take(const std::vector<std::string>& lines) {
    for (const std::string& line : lines) {
      if (auto stats = parse_step_stats(line)) {
        job_.add(std::move(*stats));
      } else {
        ++skipped_;
      }
    }
  }

  bool has_news() const { return job_.steps() != steps_shown_; }

  // A terminal is drawn anew even when nothing came; a log gets no line that says the same again.
  bool is_due() const { return !flags_.once && Clock::now() >= due_ && (screen_ || has_news()); }

  bool goes_on() const {
    const bool is_enough = flags_.once && !flags_.file.empty();  // of a pipe, "what is there" is all that comes
    return !is_enough && !is_interrupted && !lines_.is_over();
  }

  void show() {
    if (screen_) {
      screen_->draw(watch_frame(job_, flags_.file.empty() ? "standard input" : flags_.file, this_terminal()));
    } else {
      print(watch_line(job_) + "\n");
    }
    steps_shown_ = job_.steps();
    due_ = Clock::now() +
           std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(flags_.interval_seconds));
  }

  const WatchFlags& flags_;
  LineFollower lines_;
  std::optional<Screen> screen_;
  JobStats job_;
  std::size_t skipped_ = 0;
  std::uint64_t steps_shown_ = 0;
  Clock::time_point due_ = Clock::now();
};

int run_watch(const WatchFlags& flags) {
  struct sigaction action {};
  action.sa_handler = [](int) { is_interrupted = true; };  // without SA_RESTART, so that waiting ends
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
  return guarded([&] {
    Watch(flags).run();
    return 0;
  });
}

constexpr const char* kExamples = R"(Examples:
  tulle watch results/train.jsonl
  tulle train linear --data FILE --json /dev/stdout | tulle watch
  tulle watch results/train.jsonl --once

Where the output is not a terminal, a plain line is printed for each interval in which something came.
)";

}  // namespace

void add_watch_command(CLI::App& parent, Action& action) {
  CLI::App* const command = parent.add_subcommand("watch", "Show a running job from its stats lines, until Ctrl-C");
  command->footer(kExamples);
  const auto flags = std::make_shared<WatchFlags>();
  command->add_option("FILE", flags->file, "what the job writes, also while it grows (standard input)")
      ->check(CLI::ExistingFile);
  command->add_option("--interval", flags->interval_seconds, "seconds between two views (1)")
      ->check(CLI::Range(0.05, 3600.0))
      ->type_name("SECONDS");
  command->add_flag("--once", flags->once, "show what is there and leave");
  command->callback([flags, &action] {
    if (flags->file.empty() && ::isatty(STDIN_FILENO) == 1) {
      throw CLI::ValidationError("FILE", "is needed where standard input is a terminal");
    }
    action = [flags] { return run_watch(*flags); };
  });
}

}  // namespace tulle::cli
