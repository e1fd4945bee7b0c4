// Messages that are sent and not delivered.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "comm/sim_parcel.hpp"
#include "comm/sim_ports.hpp"

namespace tulle {

struct SimFlight {
  SimTransfer transfer;
  SimParcel parcel;
  bool is_lost = false;
};

/// Places are given out one after the other, in chunks; a quiet network begins its chunk anew. What is sent together
/// arrives at about the same time, so that whole chunks become free: a few are kept, and the memory of the others is
/// there for what ranks make of the messages.
class SimFlights {
 public:
  std::uint32_t put(SimFlight flight);
  SimFlight& at(std::uint32_t place) { return chunks_[place / kChunk].flights[place % kChunk]; }
  SimFlight take(std::uint32_t place);
  /// True where a message is under way that will arrive. Looks at all that are.
  bool is_under_way(int source, int target) const;

 private:
  static constexpr std::uint32_t kChunk = 256;
  static constexpr std::size_t kMostSpare = 64;  // chunks, 4 MB
  struct Chunk {
    std::unique_ptr<SimFlight[]> flights;
    std::uint32_t given = 0;  // places
    std::uint32_t live = 0;
  };

  void open_chunk();
  void close_chunk(std::uint32_t number);

  std::vector<Chunk> chunks_;
  std::vector<std::uint32_t> closed_;  // numbers to use again
  std::vector<std::unique_ptr<SimFlight[]>> spare_;
  std::uint32_t current_ = 0;
};

}  // namespace tulle
