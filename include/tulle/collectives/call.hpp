// What a collective is called with, and what it gives.
//
// Threads: plain values, each used by one thread at a time. A call copies its options before it returns.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "tulle/codec/index_coding.hpp"
#include "tulle/codec/value_coding.hpp"
#include "tulle/collectives/accumulator.hpp"
#include "tulle/comm/operation.hpp"
#include "tulle/stream/op.hpp"
#include "tulle/stream/stream.hpp"

#pragma GCC visibility push(default)
namespace tulle {

inline constexpr std::string_view kAuto = "auto";
/// Algorithms: auto among the rows that work on sparse streams, and among those that work on dense ones.
inline constexpr std::string_view kAutoSparse = "auto_sparse", kAutoDense = "auto_dense";
/// An index coding: for every frame the one with the fewest bytes.
inline constexpr std::string_view kSmallest = "smallest";

/// Which of the values that were taken out but not delivered come back to an accumulator. SparDL, section 3.2.
enum class ResidualMode : std::uint8_t {
  global,   ///< all: what is lost on the way stays with the rank that dropped it
  partial,  ///< what the rank did not send, and what it sent where the result has nothing
  local,    ///< what the rank did not send
};
std::string_view to_string(ResidualMode mode);

/// Which values a value coding is for, in rows that split: what ranks send to owners, or what owners send to everyone.
/// A row without owners codes what it sends. Rows that select code whatever travels where a coding is fine, and coarse
/// ones once, when they deliver: what that loses stays with them.
enum class CodedValues : std::uint8_t {
  sums,           ///< of the owners; contributions arrive as they are
  contributions,  ///< of the ranks; sums are not coded again
  both,
};
std::string_view to_string(CodedValues values);

/// What the caller asks for. Everything here must be equal on all ranks; ranks that differ are told. Names are looked
/// at when the call is made and need not live longer. A call throws bad_input where a field is out of its bounds.
struct CallOptions {
  /// A row's name, auto (the cheapest by the communicator's profile and what calls took), auto_sparse or auto_dense.
  std::string_view algorithm = kAuto;
  Op op = Op::sum();
  int root = 0;                        ///< of reduce and broadcast
  std::optional<double> density = {};  ///< expected share of non-zeros in one rank's stream; auto believes it

  std::string_view index_coding = kAuto;  ///< of sparse frames: a coding's name, smallest, or auto: by bytes and speed
  ValueCodec value_coding = {};           ///< raw is exact; others are for rows that say so
  CodedValues coded_values = CodedValues::sums;  ///< that it is for

  std::uint64_t k = 0;  ///< accumulators: values to deliver; 0: density says
  ResidualMode residual = ResidualMode::global;
  int teams = 1;                         ///< spardl: teams that reduce apart first; divides P
  std::string_view team_gather = kAuto;  ///< spardl: r_sag, b_sag, or auto: r_sag where teams is a power of two
  std::uint32_t threshold_period = 32;   ///< oktopk: calls between two exact selections (the paper's τ')
  std::uint32_t region_period = 64;      ///< oktopk: calls between two partitions of the space (its τ)

  std::uint64_t seed = 0;                  ///< of stochastic rounding; each rank and channel draws its own from it
  std::optional<std::uint64_t> step = {};  ///< of training; unset: the operation's number on its channel

  double deadline_seconds = 0;  ///< 0: the communicator's default
  bool checksum = false;        ///< a CRC-32C of every payload: one pass more at both ends
  /// The caller does nothing else until the call is over, as a blocking call does: its time then tells what the row
  /// takes, and mpi_native may block. For programs, which await.
  bool awaited_at_once = false;
  bool reproducible = false;  ///< auto decides by the options alone and learns nothing from earlier calls
};

/// What is reduced: a stream, or a dense accumulator for the rows that select while they communicate.
struct Payload {
  AnyStream stream;
  Accumulator accumulator;
};

/// What a call did on this rank; the stream is the same on all.
struct Outcome {
  AnyStream stream;
  std::string_view algorithm;  ///< the row that ran; its name lives as long as the program
  Counts counts;
  std::uint64_t contributed = 0;  ///< non-zeros of all contributions together; 0 where a row cannot know
  std::uint64_t overflowed = 0;   ///< results that no longer fit f16 or bf16 and became infinite
  Buffer delivered;               ///< accumulators: the indices that the result has, index_bytes(N) each, increasing
  /// Accumulators: what left this rank's, as the values that were there before, increasing by index. Where this rank
  /// bears a share of a loss, a part of such a value has come back. A method that masks momentum clears it at these
  /// indices.
  AnyStream taken;
  double select_seconds = 0;  ///< accumulators: of this rank's selections
};

}  // namespace tulle
#pragma GCC visibility pop
