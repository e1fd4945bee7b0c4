// Times algorithms against each other on the same inputs, after checking their results.
//
// How it works. All *contenders* run lap by lap: the laps of one repeat follow each other, so that whatever disturbs
// the machine disturbs all. Before each lap the ranks wait for each other; the time of a lap is that of its slowest
// rank. A result is *verified* the first time a contender gives it, warm-up laps included, and again when auto turns
// to another row: rank 0 compares it with the serial sum, and all ranks compare its bits. Who fails is not timed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/progress.hpp"
#include "cli/track.hpp"
#include "stream/synthetic.hpp"
#include "tulle/base/quartiles.hpp"

namespace tulle::cli {

enum class RaceInput {
  matching,  ///< dense rows get vectors that were made dense before the clock starts
  sparse,    ///< all rows get the same sparse stream; dense ones make it dense while the clock runs
};

/// Throws bad_input that lists the allowed names.
RaceInput race_input_from(std::string_view name);

struct RaceSpec {
  ValueType type = ValueType::f32;
  std::uint64_t dimension = 0;
  Overlap overlap = Overlap::uniform;
  RaceInput input = RaceInput::matching;
  Op op;
  std::vector<std::string_view> algorithms;  ///< rows of the registry, and auto
  int repeats = 9;
  int learn = 0;   ///< laps of auto alone before all others
  int warmup = 2;  ///< laps that are not timed; auto learns in them. REQUIRES: at least 1
  std::uint64_t seed = 1;
  double deadline_seconds = 0;  ///< 0: the communicator's default
  bool checksum = false;
  std::string index_coding{kAuto};
  ValueCodec value_coding;
  bool codes_contributions = false;
  Takes takes = Takes::stream;  ///< accumulator: density is what of a dense gradient is to be delivered
  ResidualMode residual = ResidualMode::global;
  int teams = 1;
  std::string team_gather{kAuto};
};

struct RaceRow {
  std::string_view algorithm;
  std::string_view chosen;  ///< the row that ran: what auto chose, else the algorithm itself
  bool is_dense = false;    ///< works on dense vectors
  double density = 0;
  std::uint64_t nnz = 0;                        ///< of one rank's input
  std::optional<Quartiles> seconds;             ///< unset where the check failed
  std::optional<std::uint64_t> bytes_sent_max;  ///< of one rank; unset where the transport sends by itself
  std::optional<std::uint64_t> bytes_sent_total;
  std::optional<std::uint64_t>
      wire_bytes_sent_max;  ///< of one host, by its interface, mean of the timed laps; in a lab
  std::optional<std::uint64_t> wire_bytes_sent_total;
  std::uint64_t messages = 0;        ///< of all ranks
  std::uint64_t messages_max = 0;    ///< of one rank
  std::uint64_t data_bytes_max = 0;  ///< of indices and values, in one direction through one rank's port
  std::uint64_t depth = 0;           ///< 0 where nobody counts it
  double select_seconds = 0;         ///< of the slowest rank
  std::uint64_t nnz_result = 0;      ///< values stored in the result
  bool verified = false;
  std::string failure;  ///< why not
};

/// How a row's allreduce is called.
CallOptions options_of(const RaceSpec& spec, const RaceRow& row);
/// What the local ranks of a lap did: the most of one, and sums.
void count_lap(RaceRow& row, const Lap& lap);

/// True for rows that only know dense vectors. They are given dense inputs: making them is not what is timed.
bool wants_dense_input(std::string_view algorithm);

/// Laps of one race, for a progress line.
std::uint64_t laps_of(const RaceSpec& spec);

/// Races at one density; the same rows on all ranks. Collective.
std::vector<RaceRow> race(Track& track, const RaceSpec& spec, double density, Progress* progress = nullptr);

}  // namespace tulle::cli
