// What a comparison has shown, in two plain sentences.
#pragma once

#include <string>
#include <vector>

#include "cli/bench/bench_report.hpp"

namespace tulle::cli {

/// One element of `rows` for each density, in the order in which they ran. Two lines.
std::string summarize(const BenchRun& run, const std::vector<std::vector<measure::Row>>& rows);

}  // namespace tulle::cli
