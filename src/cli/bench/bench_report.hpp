// How the rows of a comparison are shown: as a table in the habits of nccl-tests, as JSON, and in two sentences.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "cli/common/table.hpp"
#include "measure/comparison.hpp"
#include "measure/machine.hpp"

namespace tulle::cli {

/// What all rows of a run share.
struct BenchRun {
  measure::ComparisonSpec spec;
  std::string transport;
  int ranks = 1;
  std::string mpi;  ///< the library; empty on other transports
  measure::Machine machine;
  std::string timestamp;

  /// Rows that select while they communicate.
  bool selects() const { return spec.takes == Takes::accumulator; }
  bool is_virtual() const { return transport == "sim"; }
  double dense_bytes() const { return static_cast<double>(spec.dimension) * static_cast<double>(size_of(spec.type)); }
};

/// What speed-ups are measured against: mpi_native, else the fastest dense row; null where no dense row has a time.
const measure::Row* reference_of(std::span<const measure::Row> rows);

class BenchTable {
 public:
  explicit BenchTable(const BenchRun& run);
  /// Lines with '#': the environment, what the columns mean, their titles.
  std::string header() const;
  /// The rows of one density.
  std::string rows(std::span<const measure::Row> rows) const;

 private:
  std::string codings_line() const;
  std::string selections_legend() const;
  std::vector<std::string> cells(const measure::Row& row, const measure::Row* reference) const;
  std::vector<std::string> cells_of_selection(const measure::Row& row) const;

  const BenchRun& run_;
  Table table_;
};

/// One line.
std::string bench_json(const BenchRun& run, const measure::Row& row);

}  // namespace tulle::cli
