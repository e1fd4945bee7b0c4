// Times algorithms against each other on the same inputs, after checking their results.
//
// How it works. In each *repeat* every *candidate* is called once, in an order of the repeat's own, so that whatever
// disturbs the machine disturbs all. Before each call the ranks wait for each other; the time of a call is that of its
// slowest rank. A result is *verified* the first time a candidate gives it, warm-up included, and again when auto turns
// to another row: rank 0 compares it with the serial sum, and all ranks compare its bits. Who fails is not timed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/progress.hpp"
#include "measure/local_ranks.hpp"
#include "stream/synthetic.hpp"
#include "tulle/base/quartiles.hpp"

namespace tulle::measure {

enum class InputForm {
  matching,  ///< dense rows get vectors that were made dense before the clock starts
  sparse,    ///< all rows get the same sparse stream; dense ones make it dense while the clock runs
};

/// Throws bad_input that lists the allowed names.
InputForm input_form_from(std::string_view name);

struct ComparisonSpec {
  ValueType type = ValueType::f32;
  std::uint64_t dimension = 0;
  Overlap overlap = Overlap::uniform;
  InputForm input = InputForm::matching;
  Op op;
  std::vector<std::string_view> algorithms;  ///< rows of the registry, and auto
  int repeats = 9;                           ///< timed calls of each row on each data set
  int data_sets = 1;                         ///< inputs that are drawn anew, one after the other
  int calls = 1;                             ///< simulations: one after the other, with the state of the one before
  int learn = 0;                             ///< calls of auto alone before all others
  int warmup = 2;                            ///< repeats that are not timed; auto learns in them. REQUIRES: at least 1
  std::uint64_t seed = 1;
  double deadline_seconds = 0;  ///< 0: the communicator's default
  bool checksum = false;
  std::string index_coding{kAuto};
  ValueCodec value_coding;
  CodedValues coded_values = CodedValues::sums;
  Takes takes = Takes::stream;  ///< accumulator: density is what of a dense gradient is to be delivered
  ResidualMode residual = ResidualMode::global;
  int teams = 1;
  std::string team_gather{kAuto};
};

struct Row {
  std::string_view algorithm;
  std::string_view chosen;  ///< the row that ran: what auto chose, else the algorithm itself
  bool is_dense = false;    ///< works on dense vectors
  double density = 0;
  std::uint64_t nnz = 0;                        ///< of one rank's input
  std::optional<Quartiles> seconds;             ///< unset where the check failed
  std::optional<std::uint64_t> bytes_sent_max;  ///< of one rank; unset where the transport sends by itself
  std::optional<std::uint64_t> bytes_sent_total;
  std::optional<std::uint64_t>
      wire_bytes_sent_max;  ///< of one host, by its interface, mean of the timed calls; in a lab
  std::optional<std::uint64_t> wire_bytes_sent_total;
  std::uint64_t messages = 0;      ///< of all ranks
  std::uint64_t messages_max = 0;  ///< of one rank
  /// Of indices and values, in one direction through one rank's port: the most of the timed calls, in simulation the
  /// mean.
  std::uint64_t data_bytes_max = 0;
  std::uint64_t depth = 0;       ///< 0 where nobody counts it
  double select_seconds = 0;     ///< of the slowest rank
  std::uint64_t nnz_result = 0;  ///< values stored in the result
  bool verified = false;
  std::string failure;  ///< why not
};

/// How a row's allreduce is called.
CallOptions options_of(const ComparisonSpec& spec, const Row& row);
/// What the local ranks of a call did: the most of one, and sums.
void count_call(Row& row, const TimedCall& call);

/// True for rows that only know dense vectors. They are given dense inputs: making them is not what is timed.
bool wants_dense_input(std::string_view algorithm);

/// Calls of one comparison, for a progress line.
std::uint64_t calls_of(const ComparisonSpec& spec);

/// Compares at one density; the same rows on all ranks. Collective.
std::vector<Row> compare(LocalRanks& ranks, const ComparisonSpec& spec, double density, Progress* progress = nullptr);

}  // namespace tulle::measure
