// What a race has shown, in two plain sentences.
#pragma once

#include <string>
#include <vector>

#include "cli/bench_report.hpp"

namespace tulle::cli {

/// One element of `rows` for each density, in the order in which they ran. Two lines.
std::string summarize(const BenchRun& run, const std::vector<std::vector<RaceRow>>& rows);

}  // namespace tulle::cli
