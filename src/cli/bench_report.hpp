// How the rows of a race are shown: as a table in the habits of nccl-tests, as JSON, and in two sentences.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "cli/machine.hpp"
#include "cli/race.hpp"
#include "cli/table.hpp"

namespace tulle::cli {

/// What all rows of a run share.
struct BenchRun {
  RaceSpec spec;
  std::string transport;
  int ranks = 1;
  std::string mpi;  ///< the library; empty on other transports
  Machine machine;
  std::string timestamp;

  /// Rows that select while they communicate.
  bool selects() const { return spec.takes == Takes::accumulator; }
  bool is_virtual() const { return transport == "sim"; }
  double dense_bytes() const { return static_cast<double>(spec.dimension) * static_cast<double>(size_of(spec.type)); }
};

/// What speed-ups are measured against: mpi_native, else the fastest dense row; null where no dense row has a time.
const RaceRow* reference_of(std::span<const RaceRow> rows);

class BenchTable {
 public:
  explicit BenchTable(const BenchRun& run);
  /// Lines with '#': the environment, what the columns mean, their titles.
  std::string header() const;
  /// The rows of one density.
  std::string rows(std::span<const RaceRow> rows) const;

 private:
  std::string codings_line() const;
  std::string selections_legend() const;
  std::vector<std::string> cells(const RaceRow& row, const RaceRow* reference) const;
  std::vector<std::string> cells_of_selection(const RaceRow& row) const;

  const BenchRun& run_;
  Table table_;
};

/// One line.
std::string bench_json(const BenchRun& run, const RaceRow& row);

}  // namespace tulle::cli
