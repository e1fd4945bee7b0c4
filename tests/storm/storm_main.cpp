// Runs storms by their numbers, for as long as it takes: scripts/storm says how.
#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>

#include "storm/storm.hpp"

namespace tulle::storm {
namespace {

struct Arguments {
  std::uint64_t schedules = 1'000'000;
  std::optional<std::uint64_t> replay;
  std::string state;  ///< a file that says how far an earlier run came; empty: none
};

// The number that follows a flag.
std::uint64_t number_of(const char* text) {
  char* end = nullptr;
  const std::uint64_t number = std::strtoull(text, &end, 10);
  if (end == text || *end != '\0') {
    fmt::print(stderr, "'{}' is not a number\n", text);
    std::exit(2);
  }
  return number;
}

Arguments parse(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view flag = argv[i];
    if (flag == "--schedules")
      arguments.schedules = number_of(argv[i + 1]);
    else if (flag == "--replay")
      arguments.replay = number_of(argv[i + 1]);
    else if (flag == "--state")
      arguments.state = argv[i + 1];
    else
      argc = 0;
  }
  if (argc % 2 == 1) return arguments;
  fmt::print(stderr, "usage: {} [--schedules N] [--state FILE] | --replay N\n", argv[0]);
  std::exit(2);
}

int replay(std::uint64_t number) {
  const Schedule schedule = random_schedule(number);
  fmt::print("schedule {}: {}\n", number, describe(schedule));
  const Report report = run(schedule);
  fmt::print("{} died, {} committed, {} excluded, {} answers of agreements\n", report.dead, report.committed,
             report.excluded, report.agreements);
  fmt::print("{}\n", report.complaint.empty() ? "nothing is wrong" : report.complaint);
  return report.complaint.empty() ? 0 : 1;
}

std::uint64_t read_state(const std::string& path) {
  std::uint64_t done = 0;
  std::ifstream(path) >> done;
  return done;
}

// By renaming, so that a run that is ended while it writes leaves the number before.
void write_state(const std::string& path, std::uint64_t done) {
  if (path.empty()) return;
  std::ofstream(path + ".new") << done << '\n';
  std::filesystem::rename(path + ".new", path);
}

int run_all(const Arguments& arguments) {
  constexpr std::uint64_t kBetweenStates = 10'000;
  std::uint64_t dead = 0, committed = 0, excluded = 0;
  const std::uint64_t before = arguments.state.empty() ? 0 : read_state(arguments.state);
  if (before > 0) fmt::print("goes on after schedule {}\n", before);
  const auto begin = std::chrono::steady_clock::now();
  for (std::uint64_t number = before + 1; number <= arguments.schedules; ++number) {
    const Report report = run(random_schedule(number));
    if (!report.complaint.empty()) {
      fmt::print("schedule {} fails: {}\n  {}\n  alone: scripts/storm --replay {}\n", number, report.complaint,
                 describe(random_schedule(number)), number);
      return 1;
    }
    dead += static_cast<std::uint64_t>(report.dead);
    committed += static_cast<std::uint64_t>(report.committed);
    excluded += static_cast<std::uint64_t>(report.excluded);
    if (number % kBetweenStates != 0 && number != arguments.schedules) continue;
    write_state(arguments.state, number);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    fmt::print("{} of {} schedules, {:.0f} a second; {} ranks died, {} committed, {} were excluded\n", number,
               arguments.schedules, static_cast<double>(number - before) / seconds, dead, committed, excluded);
    std::fflush(stdout);
  }
  if (!arguments.state.empty())
    std::filesystem::remove(arguments.state);  // the next run begins anew, with what it is then
  return 0;
}

}  // namespace
}  // namespace tulle::storm

int main(int argc, char** argv) {
  const tulle::storm::Arguments arguments = tulle::storm::parse(argc, argv);
  return arguments.replay ? tulle::storm::replay(*arguments.replay) : tulle::storm::run_all(arguments);
}
