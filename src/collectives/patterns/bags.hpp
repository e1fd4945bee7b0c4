// The bags of Spar-Reduce-Scatter, for any number of ranks. SparDL, section 3.1.
//
// P blocks lie in a circle; a rank begins with its own. It *preserves* that one and puts the next 1, 2, 4, … into
// sending bags, the last of which may stay partly empty. Bags are sent from the last to the first: the bag that begins
// D blocks on goes to the rank D places on, and from as far back comes a bag that begins with the rank's own block.
#pragma once

namespace tulle::patterns {

struct Bag {
  int send_to;
  int receive_from;
  int first_sent;      ///< block
  int first_received;  ///< block
  int blocks;          ///< in either
};

/// The distance of the first bag to be sent: the largest power of two below `size`; 0 where there is none to send.
inline int first_bag_distance(int size) {
  int distance = 0;
  for (int next = 1; next < size; next *= 2) distance = next;
  return distance;
}

/// REQUIRES: distance is first_bag_distance(size) or half a distance that was sent before.
inline Bag bag_at(int rank, int size, int distance) {
  const int held = distance == first_bag_distance(size) ? size : 2 * distance;
  return {(rank + distance) % size, (rank + size - distance) % size, (rank + distance) % size, rank, held - distance};
}

}  // namespace tulle::patterns
