#include "cli/bench/summary.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "cli/common/numbers.hpp"

namespace tulle::cli {
namespace {

using RowsByDensity = std::vector<std::vector<measure::Row>>;

template <class Predicate>
const measure::Row* fastest(const std::vector<measure::Row>& rows, Predicate is_eligible) {
  const measure::Row* best = nullptr;
  for (const measure::Row& row : rows) {
    if (!row.seconds || !is_eligible(row)) continue;
    if (best == nullptr || row.seconds->median < best->seconds->median) best = &row;
  }
  return best;
}

bool is_sparse(const measure::Row& row) { return !row.is_dense && row.algorithm != kAuto; }

std::string join(const std::vector<std::string>& parts) {
  if (parts.size() < 2) return parts.empty() ? "" : parts.front();
  const auto last = parts.end() - 1;
  return fmt::format("{} and {}", fmt::join(parts.begin(), last, ", "), *last);
}

// "58 times faster at density 0.001 (ssar_split_allgather, 1.9 ms against 110 ms, 262 kB sent per rank)"
std::string comparison(const measure::Row& sparse, const measure::Row& reference) {
  const double ratio = reference.seconds->median / sparse.seconds->median;
  const std::string factor =
      ratio >= 1 ? fmt::format("{:.3g} times faster", ratio) : fmt::format("{:.3g} times slower", 1 / ratio);
  const std::string sent =
      sparse.bytes_sent_max
          ? fmt::format(", {} sent per rank", format_bytes(static_cast<double>(*sparse.bytes_sent_max)))
          : "";
  return fmt::format("{} at density {:g} ({}, {} against {}{})", factor, sparse.density, sparse.algorithm,
                     format_seconds(sparse.seconds->median), format_seconds(reference.seconds->median), sent);
}

std::string speed_sentence(const BenchRun& run, const RowsByDensity& rows_by_density) {
  std::vector<std::string> comparisons;
  std::string_view rival = "the fastest dense algorithm";
  for (const std::vector<measure::Row>& rows : rows_by_density) {
    const measure::Row* const reference = reference_of(rows);
    const measure::Row* const sparse = fastest(rows, is_sparse);
    if (reference == nullptr || sparse == nullptr) continue;
    if (reference->algorithm == "mpi_native") rival = "MPI's own allreduce";
    comparisons.push_back(comparison(*sparse, *reference));
  }
  const std::string job = fmt::format("On {} ranks over {} and vectors of {} {}", run.ranks, run.transport,
                                      run.spec.dimension, to_string(run.spec.type));
  if (comparisons.empty()) {
    return fmt::format("{}, this run has no sparse algorithm to compare with a dense one.", job);
  }
  return fmt::format("{}, the best sparse algorithm was, against {}, {}.", job, rival, join(comparisons));
}

// How far auto was from the fastest row where it was furthest; empty where auto did not run.
std::string auto_clause(const RowsByDensity& rows_by_density) {
  double worst = 0;
  for (const std::vector<measure::Row>& rows : rows_by_density) {
    const measure::Row* const by_auto = fastest(rows, [](const measure::Row& row) { return row.algorithm == kAuto; });
    const measure::Row* const best = fastest(rows, [](const measure::Row& row) { return row.algorithm != kAuto; });
    if (by_auto != nullptr && best != nullptr)
      worst = std::max(worst, by_auto->seconds->median / best->seconds->median);
  }
  if (worst == 0) return "";
  if (worst <= 1) return "The automatic choice was never slower than the fastest algorithm, and ";
  return fmt::format("The automatic choice took at most {:.0f} % longer than the fastest algorithm, and ",
                     (worst - 1) * 100);
}

std::string check_clause(const RowsByDensity& rows_by_density) {
  std::size_t total = 0;
  std::vector<std::string> failed;
  for (const std::vector<measure::Row>& rows : rows_by_density) {
    for (const measure::Row& row : rows) {
      ++total;
      if (!row.verified) failed.push_back(fmt::format("{} at density {:g}", row.algorithm, row.density));
    }
  }
  if (failed.empty())
    return fmt::format("all {} results equal the serial sum, bit for bit the same on all ranks", total);
  return fmt::format("{} of {} results FAILED the check against the serial sum: {}", failed.size(), total,
                     join(failed));
}

}  // namespace

std::string summarize(const BenchRun& run, const RowsByDensity& rows_by_density) {
  std::string second = auto_clause(rows_by_density) + check_clause(rows_by_density) + ".";
  second.front() = static_cast<char>(std::toupper(static_cast<unsigned char>(second.front())));
  return speed_sentence(run, rows_by_density) + "\n" + second + "\n";
}

}  // namespace tulle::cli
