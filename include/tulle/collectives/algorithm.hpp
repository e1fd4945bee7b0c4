// The registry: every algorithm is a row of data, and everything that lists algorithms reads the rows.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "tulle/codec/index_coding.hpp"
#include "tulle/codec/value_coding.hpp"
#include "tulle/collectives/accumulator.hpp"
#include "tulle/comm/algorithm_state.hpp"
#include "tulle/comm/operation.hpp"
#include "tulle/comm/profile.hpp"
#include "tulle/comm/task.hpp"
#include "tulle/stream/op.hpp"
#include "tulle/stream/stream.hpp"

namespace tulle {

inline constexpr std::string_view kAuto = "auto";
/// An index coding: for every frame the one with the fewest bytes.
inline constexpr std::string_view kSmallest = "smallest";

/// Which of the values that were taken out but not delivered come back to an accumulator. SparDL, section 3.2.
enum class ResidualMode : std::uint8_t {
  global,   ///< all: what is lost on the way stays with the rank that dropped it
  partial,  ///< what the rank did not send, and what it sent where the result has nothing
  local,    ///< what the rank did not send
};
std::string_view to_string(ResidualMode mode);

/// What the caller asks for. Everything here must be equal on all ranks.
struct CallOptions {
  std::string_view algorithm = kAuto;  ///< a row's name, or auto: the cheapest by the communicator's profile
  Op op = Op::sum();
  int root = 0;                   ///< of reduce and broadcast
  std::optional<double> density;  ///< expected share of non-zeros in one rank's stream; auto believes it

  std::string_view index_coding = kAuto;  ///< of sparse frames: a coding's name, smallest, or auto: by bytes and speed
  ValueCodec value_coding;                ///< raw is exact; others are for rows that say so
  bool codes_contributions = false;       ///< rows that split: code values also on their way to the owners

  std::uint64_t k = 0;  ///< accumulators: values to deliver; 0: density says
  ResidualMode residual = ResidualMode::global;
  int teams = 1;                         ///< spardl: teams that reduce apart first; divides P
  std::string_view team_gather = kAuto;  ///< spardl: r_sag, b_sag, or auto: r_sag where teams is a power of two
  std::uint32_t threshold_period = 32;   ///< oktopk: calls between two exact selections (the paper's τ')
  std::uint32_t region_period = 64;      ///< oktopk: calls between two partitions of the space (its τ)

  std::uint64_t seed = 0;             ///< of stochastic rounding
  std::optional<std::uint64_t> step;  ///< of training; unset: the operation's number on its communicator

  double deadline_seconds = 0;  ///< 0: the communicator's default
  bool checksum = false;        ///< a CRC-32C of every payload
  bool reproducible = false;    ///< auto decides by the options alone and learns nothing from earlier calls
};

/// What is reduced: a stream, or a dense accumulator for the rows that select while they communicate.
struct Payload {
  AnyStream stream;
  Accumulator accumulator;
};

struct Outcome {
  AnyStream stream;
  std::string_view algorithm;  ///< the row that ran
  Counts counts;
  std::uint64_t contributed = 0;  ///< non-zeros of all contributions together; 0 where a row cannot know
  std::uint64_t overflowed = 0;   ///< results that no longer fit f16 or bf16 and became infinite
  Ticks last_call = 0;            ///< how long the slowest rank's call before this one took; 0: unknown
  Buffer delivered;               ///< accumulators: the indices that the result has, index_bytes(N) each, increasing
  double select_seconds = 0;      ///< accumulators: of this rank's selections
};

/// Ranks that share a port between nodes.
inline double ranks_at_a_port(int ranks, int nodes) { return nodes > 1 ? static_cast<double>(ranks) / nodes : 1; }
/// The constants as one rank sees them: what ranks share, each gets a part of.
Profile profile_of_rank(Profile profile, int ranks, int nodes);

/// What a cost depends on. SparCML's symbols: P, N, k, K, isize, c; then α, β, γ.
struct CostInput {
  int ranks = 1;
  double dimension = 0;
  double nnz = 0;         ///< k: of one rank
  double result_nnz = 0;  ///< K: of the sum
  double value_bytes = 4;
  double index_bytes = 4;
  std::string_view index_coding = "raw";  ///< as in CallOptions
  double coded_value_bytes = 4;           ///< of a value as the value coding leaves it
  int teams = 1;
  int nodes = 1;       ///< that the ranks are on; P where each has its own
  Profile profile;     ///< β as a rank sees it: where ranks share a node's port, ranks_at_a_port() times the port's
  double overlap = 1;  ///< how much of what uniform positions would add to a union really is added: 0, the same indices

  double ranks_at_a_port() const { return tulle::ranks_at_a_port(ranks, nodes); }
  /// Non-zeros expected in the sum of `count` ranks' contributions.
  double union_of(double count) const;
  /// Bytes of `nnz` non-zeros among `extent` values in the smaller layout, indices coded as asked for.
  double stream_bytes(double nnz, double extent) const { return stream_bytes(nnz, extent, value_bytes); }
  /// The same once their values are coded.
  double coded_stream_bytes(double nnz, double extent) const { return stream_bytes(nnz, extent, coded_value_bytes); }
  double stream_bytes(double nnz, double extent, double bytes_per_value) const;
  /// What coding those indices takes, at both ends together.
  double coding_seconds(double nnz, double extent) const;
};

/// Bytes of a value of `type` as `codec` leaves it, of many: parameters and scales at their front do not count.
double coded_value_bytes(const ValueCodec& codec, ValueType type);

enum class Exactness {
  exact,                ///< the sum, or with a value coding what that coding promises
  lossy_with_residual,  ///< some of the sum; the rest stays in the accumulators
};
std::string_view to_string(Exactness exactness);

/// What a row needs beyond messages.
enum class Needs { messages, native_allreduce };

enum class Takes { stream, accumulator };

struct Algorithm {
  std::string_view name;
  OperationKind kind;
  std::string_view summary;
  std::string_view paper;
  Exactness exactness;
  Needs needs;
  Takes takes;
  Layout input;       ///< the layout it works on; a stream of the other one is converted first
  bool codes_values;  ///< can send values in fewer bits
  bool dense_result;  ///< makes a dense vector of N values, whatever the input, and so refuses 2^32 of them or more
  double (*cost_seconds)(const CostInput&);
  Task<Outcome> (*run)(Operation&, Payload&, const CallOptions&, AlgorithmState*);
};

/// All rows.
std::span<const Algorithm> registry();
/// Throws bad_input listing the rows of that kind.
const Algorithm& find_algorithm(OperationKind kind, std::string_view name);
/// The row's number in fingerprints: its place in the registry, from 1.
std::uint8_t algorithm_number(const Algorithm& algorithm);

/// What a row must be able to do.
struct RowNeeds {
  OperationKind kind = OperationKind::allreduce;
  Takes takes = Takes::stream;
  bool coded_values = false;
};

/// Whether auto may give a call to the row: it does what is needed, by messages alone.
bool can_serve(const Algorithm& algorithm, const RowNeeds& needs);

/// The cheapest row that can serve, costs corrected by what earlier calls took. Depends on its arguments only,
/// so ranks agree. Throws unsupported where there is none.
const Algorithm& choose(const RowNeeds& needs, const CostInput& input, const Experience& experience = {});

}  // namespace tulle
