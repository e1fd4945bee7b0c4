// Rows of results files: what the commands write with --json, one object a line.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tulle::cli {

struct BadLine {
  std::string file;
  std::uint64_t line = 0;  ///< from 1
  std::string reason;
};

struct ResultRows {
  std::vector<std::string> rows;  ///< JSON objects that passed check_row()
  std::vector<BadLine> bad;
};

/// Why `line` is not a row that a report can show; unset for a good one. Kinds and fields that are not known are good:
/// other programs and later versions may write them.
std::optional<std::string> check_row(std::string_view line);

/// Reads files in their order; empty lines are skipped. Throws system naming a file that cannot be read.
ResultRows read_result_rows(const std::vector<std::string>& paths);

}  // namespace tulle::cli
