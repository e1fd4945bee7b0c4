// How `tulle watch` shows a job: a few lines that are drawn over, or one line where that is not possible.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cli/report/job_stats.hpp"

namespace tulle::cli {

struct WatchStyle {
  std::size_t columns = 80;
  bool has_unicode = true;  ///< else sparklines are made of ASCII
  bool has_colour = true;
};

/// The last `columns` of `values` as one character each, from the least to the greatest of them.
std::string sparkline(std::span<const double> values, std::size_t columns, bool has_unicode);

/// Lines for a terminal, without their ends. None is wider than the terminal.
std::vector<std::string> watch_frame(const JobStats& job, std::string_view source, const WatchStyle& style);

/// The same in one line of plain text, without its end.
std::string watch_line(const JobStats& job);

}  // namespace tulle::cli
