// How simulated rows are shown: as a table, and as JSON in the shape of `tulle bench allreduce`.
#pragma once

#include <span>
#include <string>

#include "cli/bench/bench_report.hpp"
#include "measure/simulation.hpp"
#include "tulle/comm/network.hpp"

namespace tulle::cli {

class SimulationTable {
 public:
  /// REQUIRES: both outlive it.
  SimulationTable(const BenchRun& run, const Network& network);
  /// Lines with '#': what is simulated, what the columns mean, their titles.
  std::string header() const;
  /// The rows of one number of ranks and one density.
  std::string rows(int ranks, std::span<const measure::SimulatedRow> rows) const;

 private:
  std::vector<std::string> cells(int ranks, const measure::SimulatedRow& row, const measure::Row* reference) const;

  const BenchRun& run_;
  const Network& network_;
  Table table_;
};

/// One line: the fields of bench_json(), and the network, the busiest port and whether data was real.
std::string simulation_json(const BenchRun& run, const Network& network, const measure::SimulatedRow& row);

}  // namespace tulle::cli
