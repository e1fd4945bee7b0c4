#include "cli/bench/bench_report.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace tulle::cli {
namespace {

std::vector<Column> columns() {
  return {{"density", "", Align::right, 8},         {"nnz/rank", "(values)", Align::right, 9},
          {"size", "(B)", Align::right, 10},        {"algorithm", "", Align::left, 26},
          {"time", "(us)", Align::right, 10},       {"algbw", "(GB/s)", Align::right, 8},
          {"busbw", "(GB/s)", Align::right, 8},     {"sent/rank", "(B)", Align::right, 11},
          {"speed-up", "(times)", Align::right, 8}, {"check", "", Align::left, 6}};
}

std::vector<Column> columns_of_selections() {
  return {{"density", "", Align::right, 8},
          {"k", "(values)", Align::right, 9},
          {"algorithm", "", Align::left, 18},
          {"time", "(us)", Align::right, 10},
          {"select", "(us)", Align::right, 9},
          {"depth", "", Align::right, 5},
          {"messages", "(/rank)", Align::right, 8},
          {"words", "(/rank)", Align::right, 10},
          {"sent/rank", "(B)", Align::right, 11},
          {"result", "(values)", Align::right, 9},
          {"check", "", Align::left, 6}};
}

std::string name_of(const measure::Row& row) {
  return row.algorithm == row.chosen ? std::string(row.algorithm) : fmt::format("{}={}", row.algorithm, row.chosen);
}

// Three digits are about what a repeated measurement can tell; bandwidths of small messages need the small ones.
std::string format_bandwidth(double gigabytes) {
  return gigabytes < 0.01 ? fmt::format("{:.1e}", gigabytes) : fmt::format("{:.2f}", gigabytes);
}

template <class Number>
nlohmann::json or_null(const std::optional<Number>& number) {
  return number ? nlohmann::json(*number) : nlohmann::json();
}

nlohmann::json or_null(const std::string& text) { return text.empty() ? nlohmann::json() : nlohmann::json(text); }

}  // namespace

const measure::Row* reference_of(std::span<const measure::Row> rows) {
  const measure::Row* reference = nullptr;
  for (const measure::Row& row : rows) {
    if (!row.is_dense || !row.seconds) continue;
    if (row.algorithm == "mpi_native") return &row;
    if (reference == nullptr || row.seconds->median < reference->seconds->median) reference = &row;
  }
  return reference;
}

BenchTable::BenchTable(const BenchRun& run)
    : run_(run), table_(run.selects() ? columns_of_selections() : columns(), "# ") {}

std::string BenchTable::header() const {
  const measure::ComparisonSpec& spec = run_.spec;
  std::string text = fmt::format("# tulle {} bench allreduce: {} of {} {}, {} inputs, {} ranks over {}{}\n",
                                 run_.machine.tulle_version, spec.op.name(), spec.dimension, to_string(spec.type),
                                 to_string(spec.overlap), run_.ranks, run_.transport,
                                 run_.mpi.empty() ? "" : fmt::format(" ({})", run_.mpi));
  text += fmt::format("# {}, {} cores, {}; {}\n", run_.machine.cpu, run_.machine.cores, run_.machine.compiler,
                      run_.timestamp);
  if (run_.is_virtual()) {
    const Profile profile;
    text += fmt::format("# times are virtual: {:.3g} us per message, {:.3g} ns per byte; no clock was read\n",
                        profile.alpha_seconds * 1e6, profile.beta_seconds_per_byte * 1e9);
  }
  text += codings_line();
  if (run_.selects()) return text + selections_legend() + table_.header();
  text += fmt::format(
      "# time: median of {} repeat(s) on {} data set(s), slowest rank; algbw: size / time; busbw: algbw * 2(P-1)/P\n",
      spec.repeats, spec.data_sets);
  text +=
      "# speed-up: against mpi_native, or else the fastest dense row; check: against the serial sum, all ranks\n#\n";
  return text + table_.header();
}

std::string BenchTable::codings_line() const {
  const measure::ComparisonSpec& spec = run_.spec;
  return fmt::format("# indices: {}; values: {} of {}\n", spec.index_coding, to_string(spec.value_coding),
                     to_string(spec.coded_values));
}

std::string BenchTable::selections_legend() const {
  const measure::ComparisonSpec& spec = run_.spec;
  return fmt::format(
      "# residuals: {}; teams of spardl: {}\n"
      "# time: median of {} repeat(s), slowest rank, selection included; select: selection alone\n"
      "# words: 4-byte words of indices and values through one rank's port, in the busier direction; depth: longest\n"
      "# chain of messages, which the simulator counts; check: result and residuals add up, all ranks the same\n#\n",
      to_string(spec.residual), spec.teams, spec.repeats);
}

std::vector<std::string> BenchTable::cells_of_selection(const measure::Row& row) const {
  const auto microseconds = [&](double seconds) { return row.seconds ? fmt::format("{:.1f}", seconds * 1e6) : "-"; };
  return {fmt::format("{:g}", row.density),
          fmt::format("{}", row.nnz),
          name_of(row),
          microseconds(row.seconds ? row.seconds->median : 0),
          microseconds(row.select_seconds),
          row.depth > 0 ? fmt::format("{}", row.depth) : "-",
          fmt::format("{}", row.messages_max),
          fmt::format("{}", row.data_bytes_max / 4),
          row.bytes_sent_max ? fmt::format("{}", *row.bytes_sent_max) : "-",
          fmt::format("{}", row.nnz_result),
          row.verified ? "OK" : "FAILED: " + row.failure};
}

std::string BenchTable::rows(std::span<const measure::Row> rows) const {
  const measure::Row* const reference = reference_of(rows);
  std::string text;
  for (const measure::Row& row : rows) {
    text += table_.row(run_.selects() ? cells_of_selection(row) : cells(row, reference));
  }
  return text;
}

std::vector<std::string> BenchTable::cells(const measure::Row& row, const measure::Row* reference) const {
  std::vector<std::string> cells = {fmt::format("{:g}", row.density), fmt::format("{}", row.nnz),
                                    fmt::format("{:.0f}", run_.dense_bytes()), name_of(row)};
  if (row.seconds) {
    const double seconds = row.seconds->median;
    const double algbw = seconds > 0 ? run_.dense_bytes() / seconds / 1e9 : 0;
    cells.insert(cells.end(), {fmt::format("{:.1f}", seconds * 1e6), format_bandwidth(algbw),
                               format_bandwidth(algbw * 2 * (run_.ranks - 1) / run_.ranks)});
  } else {
    cells.insert(cells.end(), {"-", "-", "-"});
  }
  cells.push_back(row.bytes_sent_max ? fmt::format("{}", *row.bytes_sent_max) : "-");
  const bool is_comparable = row.seconds && reference != nullptr && row.seconds->median > 0;
  cells.push_back(is_comparable ? fmt::format("{:.2f}", reference->seconds->median / row.seconds->median) : "-");
  cells.push_back(row.verified ? "OK" : "FAILED: " + row.failure);
  return cells;
}

std::string bench_json(const BenchRun& run, const measure::Row& row) {
  nlohmann::ordered_json object;
  object["algorithm"] = row.algorithm;
  object["chosen"] = row.chosen;
  object["ranks"] = run.ranks;
  object["transport"] = run.transport;
  object["dimension"] = run.spec.dimension;
  object["density"] = row.density;
  object["nnz"] = row.nnz;
  object["overlap"] = to_string(run.spec.overlap);
  object["input"] = run.spec.input == measure::InputForm::sparse ? "sparse" : "matching";
  object["type"] = to_string(run.spec.type);
  object["op"] = run.spec.op.name();
  object["seed"] = run.spec.seed;
  object["repeats"] = run.spec.repeats;
  object["data_sets"] = run.spec.data_sets;
  object["seconds_median"] = row.seconds ? nlohmann::json(row.seconds->median) : nlohmann::json();
  object["seconds_q1"] = row.seconds ? nlohmann::json(row.seconds->q1) : nlohmann::json();
  object["seconds_q3"] = row.seconds ? nlohmann::json(row.seconds->q3) : nlohmann::json();
  object["seconds_are_virtual"] = run.is_virtual();
  object["bytes_sent_max"] = or_null(row.bytes_sent_max);
  object["bytes_sent_total"] = or_null(row.bytes_sent_total);
  if (row.wire_bytes_sent_max) object["wire_bytes_sent_max"] = *row.wire_bytes_sent_max;
  if (row.wire_bytes_sent_total) object["wire_bytes_sent_total"] = *row.wire_bytes_sent_total;
  object["messages"] = row.messages;
  object["messages_max"] = row.messages_max;
  object["data_bytes_max"] = row.data_bytes_max;
  if (row.depth > 0) object["depth"] = row.depth;
  object["index_coding"] = run.spec.index_coding;
  object["value_coding"] = to_string(run.spec.value_coding);
  if (run.selects()) {
    object["k"] = row.nnz;
    object["select_seconds"] = row.select_seconds;
    object["teams"] = run.spec.teams;
    object["residual"] = to_string(run.spec.residual);
  }
  object["nnz_result"] = row.nnz_result;
  object["verified"] = row.verified;
  if (!row.verified) object["failure"] = row.failure;
  object["host"] = run.machine.host;
  object["cpu"] = run.machine.cpu;
  object["cores"] = run.machine.cores;
  object["compiler"] = run.machine.compiler;
  object["mpi"] = or_null(run.mpi);
  object["tulle_version"] = run.machine.tulle_version;
  object["git_commit"] = or_null(run.machine.git_commit);
  object["timestamp"] = run.timestamp;
  if (!run.machine.lab.empty()) object["lab"] = run.machine.lab;
  return object.dump();
}

}  // namespace tulle::cli
