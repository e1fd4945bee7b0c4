// What a synchronizer keeps, as bytes: one *state* for each rank, checked when read.
//
//   0   8  "TULLEGRA"
//   8   4  version, 1
//   12  4  CRC-32C of everything after it
//   16  8  bytes of the whole state
//   24  8  bytes of the description
//   32     the description: JSON, padded with spaces to a multiple of 8
//          then the arrays that it lists, f32, one after the other, padded with zeros to a multiple of 8
//
// States can lie one after the other in a file. Parameters go by their names.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tulle/base/buffer.hpp"

namespace tulle::gradient {

struct SavedArray {
  std::string name;
  std::span<const float> values;  ///< of whoever holds the array, or of the state that was read
};

struct SavedParameter {
  std::string name;
  std::uint64_t size = 0;
  std::uint64_t step = 0;
  double threshold = 0;
  std::uint64_t threshold_age = 0;
  std::string algorithm, dense_algorithm;  ///< what save_state() of collectives gives; empty: start anew
  std::vector<SavedArray> arrays;          ///< residual, momentum, ...: what depends on the rank, then what does not
};

struct SavedState {
  std::uint64_t rank = 0, ranks = 1;
  std::uint64_t steps = 0, local_steps = 0;
  std::uint64_t run = 0;  ///< base/generations.hpp; 0: nobody has numbered it
  std::string recipe;
  std::string decisions;  ///< what ranks decided about layers; empty: nothing, or start anew
  std::vector<SavedParameter> parameters;

  std::vector<Buffer> bytes;                ///< that arrays of a state which was read lie in
  std::vector<std::vector<float>> storage;  ///< that arrays which were computed lie in
};

/// Arrays that are the same on every rank.
bool is_replicated(const std::string& array);

Buffer encode_state(const SavedState& state);
/// Throws bad_input naming what is wrong: no state, a version that is not known, damage.
SavedState decode_state(const Buffer& bytes);
/// Bytes of the state at the front. Throws bad_input where there is none.
std::uint64_t state_bytes(std::span<const std::byte> bytes);

/// Which rank of how many goes on from the states of others.
struct Reshard {
  std::uint64_t rank = 0, ranks = 1;
  double factor = 1;  ///< of what is pending
};

/// The state of a rank among another number of them: residuals and momenta are the sums of old ranks i with
/// i mod P' = rank. Thresholds and what algorithms learned start anew. Throws bad_input unless the states are those of
/// all ranks of one job, of the same parameters in the same step.
SavedState resharded(std::span<const SavedState> old, const Reshard& to);

}  // namespace tulle::gradient
