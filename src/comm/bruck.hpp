// Bruck's allgather for any number of ranks: ⌈log2 P⌉ rounds, every block received once.
//
// In the round of distance D a rank knows the blocks of ranks r, r+1, …, r+D−1 (mod P), in this order. It hands the
// first min(D, P−D) of them to rank r−D and gets as many from rank r+D, which follow its own.
#pragma once

#include <algorithm>

namespace tulle::patterns {

struct BruckRound {
  int send_to;
  int receive_from;
  int blocks;
};

/// REQUIRES: distance is a power of two below `size`.
inline BruckRound bruck_round(int rank, int size, int distance) {
  return {(rank + size - distance) % size, (rank + distance) % size, std::min(distance, size - distance)};
}

/// ⌈log2 size⌉.
inline int bruck_rounds(int size) {
  int rounds = 0;
  for (int distance = 1; distance < size; distance *= 2) ++rounds;
  return rounds;
}

}  // namespace tulle::patterns
