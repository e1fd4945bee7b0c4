#include "base/progress.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <limits>

namespace tulle {
namespace {

constexpr std::size_t kBarWidth = 20;

double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::size_t terminal_width() {
  const char* columns = std::getenv("COLUMNS");
  const int width = columns != nullptr ? std::atoi(columns) : 0;
  return width > 0 ? static_cast<std::size_t>(width) : 80;
}

std::string time_left(double fraction, double elapsed_seconds) {
  if (fraction <= 0) return "";
  const double seconds = elapsed_seconds * (1 - fraction) / fraction;
  if (seconds < 99.5) return fmt::format("  {:.0f} s left", seconds);
  return fmt::format("  {:.0f} min left", seconds / 60);
}

}  // namespace

bool progress_is_wanted() {
  const char* wish = std::getenv("TULLE_PROGRESS");
  if (wish != nullptr && (std::string_view(wish) == "0" || std::string_view(wish) == "1")) return *wish == '1';
  return ::isatty(STDERR_FILENO) == 1;
}

std::string progress_line(std::string_view label, std::uint64_t done, std::uint64_t total, double elapsed_seconds,
                          std::string_view what, std::size_t width) {
  const double fraction = total == 0 ? 1 : std::min(1.0, static_cast<double>(done) / static_cast<double>(total));
  const auto filled = static_cast<std::size_t>(fraction * kBarWidth);
  std::string line =
      fmt::format("{} [{:#<{}}{:-<{}}] {:3.0f} %  {} of {}{}  {}", label, "", filled, "", kBarWidth - filled,
                  fraction * 100, done, total, time_left(fraction, elapsed_seconds), what);
  line.resize(std::min(line.size(), width));
  return line;
}

Progress::Progress(std::string label, std::uint64_t total, ProgressOptions options)
    : label_(std::move(label)), total_(total), options_(std::move(options)) {
  if (options_.out == nullptr) options_.out = &std::cerr;
  if (!options_.is_shown) options_.is_shown = progress_is_wanted();
  if (options_.width == 0) options_.width = terminal_width();
  if (!options_.clock_seconds) options_.clock_seconds = steady_seconds;
  started_ = options_.clock_seconds();
  drawn_at_ = -std::numeric_limits<double>::infinity();
}

void Progress::advance(std::uint64_t steps, std::string_view what) {
  done_ += steps;
  if (!*options_.is_shown) return;
  const double now = options_.clock_seconds();
  if (now - started_ < options_.delay_seconds || now - drawn_at_ < options_.interval_seconds) return;
  // A terminal wraps after its last column, so that one stays free.
  *options_.out << "\r\033[K" << progress_line(label_, done_, total_, now - started_, what, options_.width - 1)
                << std::flush;
  drawn_at_ = now;
  is_drawn_ = true;
}

void Progress::clear() {
  if (!is_drawn_) return;
  *options_.out << "\r\033[K" << std::flush;
  is_drawn_ = false;
}

}  // namespace tulle
