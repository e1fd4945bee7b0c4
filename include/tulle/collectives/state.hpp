// What is known from earlier calls of the same collective.
//
// Threads: a state is the call's that it was given to until that is over; no thread may look at it meanwhile. A second
// call is refused, on whatever thread. save_state() and load_state() keep no state of their own.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tulle/base/buffer.hpp"

#pragma GCC visibility push(default)
namespace tulle {

/// How many values a rank brings to b_sag. SparDL, Algorithm 2: grows while too few values come out, shrinks while too
/// many do, by a step that doubles at every second move in one direction and halves on a turn.
struct TeamGatherState {
  double target = 0;  ///< values that shall come out, of all blocks together; what changes it starts anew
  double h = 0;       ///< values of one block that a rank brings
  double least_h = 0;
  double most_h = 0;
  double step = 0;
  bool moved_alike = false;  ///< the last move was the first in its direction
  double came_out = 0;       ///< of the last call, SparDL's N_t; told, but neither saved nor used
};

/// Thresholds and regions that oktopk uses again.
struct OktopkState {
  std::uint64_t k = 0;              ///< that they were found for
  std::uint64_t threshold_age = 0;  ///< calls since the global threshold was found
  std::uint64_t region_age = 0;     ///< calls since the cuts were found
  double local_threshold = 0;
  double global_threshold = 0;
  std::vector<std::uint64_t> cuts;  ///< P + 1
};

/// How far off the cost functions were: ratios of measured to expected times, of the slowest rank. Ranks agree on them
/// because each call's time travels with the messages of the next.
struct Experience {
  static constexpr std::size_t kRemembered = 31;
  struct Row {
    std::uint8_t number = 0;  ///< of the row in the registry
    std::uint32_t calls = 0;
    std::uint64_t last_call = 0;  ///< counted in the experience's calls
    std::uint32_t known = 0;      ///< ratios ever noted
    std::array<float, kRemembered> ratios{};
    double correction = 1;        ///< of costs: the median of what is remembered
    double expected_seconds = 0;  ///< of its last call
  };

  PoolVector<Row> rows;
  std::uint64_t calls = 0;
  std::uint8_t last_row = 0;         ///< of the call before, 0 where there was none
  bool last_is_chosen = false;       ///< by auto
  double last_expected_seconds = 0;  ///< 0 where its time means nothing
  double last_seconds = 0;           ///< of this rank: not equal on all
  double nnz = 0;                    ///< of one rank, that the ratios were found for
  double spent_seconds = 0;          ///< by all calls since then
  double learning_seconds = 0;       ///< of that, what trying rows took beyond the fastest one
};

/// Set while a call uses a state, which two at a time must not do. A copy is not in use.
class InUse {
 public:
  InUse() = default;
  InUse(const InUse&) {}
  InUse& operator=(const InUse&) { return *this; }
  /// False where it is set already.
  bool take() { return !taken_.exchange(true, std::memory_order_acquire); }
  void leave() { taken_.store(false, std::memory_order_release); }

 private:
  std::atomic<bool> taken_ = false;
};

/// Kept between calls by the caller, or by the communicator for blocking calls, so that the next call knows what to
/// expect. Made from what all ranks know and so equal on all, except oktopk's local threshold and a rank's own time;
/// ranks whose states part ways (one call failed on some ranks only) are told by the next call. One call at a time may
/// use a state: another throws bad_input. Collectives themselves keep nothing.
struct AlgorithmState {
  std::uint64_t calls = 0;
  double nnz_per_rank = 0;  ///< mean over ranks, of the last call
  double result_nnz = 0;    ///< of the last call
  Experience experience;
  TeamGatherState team_gather;
  OktopkState oktopk;
  InUse in_use;

  /// A hash of what must be equal on all ranks for rows that go on from earlier calls.
  std::uint32_t fingerprint() const;
};

/// The state as text: JSON with a version, rows by name.
std::string save_state(const AlgorithmState& state);
/// Reads what save_state() gives. Throws bad_input naming the field that is missing, unknown or out of bounds, or a
/// version that is not known. What was learned about a row that this build does not have is left out. The state of
/// another number of ranks may be given to a call: what depends on it (oktopk's regions, the limits of h) starts anew.
AlgorithmState load_state(std::string_view text);

}  // namespace tulle
#pragma GCC visibility pop
