#include "comm/sim_flights.hpp"

#include <utility>

namespace tulle {

std::uint32_t SimFlights::put(SimFlight flight) {
  if (chunks_.empty() || chunks_[current_].given == kChunk) open_chunk();
  Chunk& chunk = chunks_[current_];
  const std::uint32_t place = current_ * kChunk + chunk.given;
  chunk.given += 1;
  chunk.live += 1;
  at(place) = std::move(flight);
  return place;
}

SimFlight SimFlights::take(std::uint32_t place) {
  SimFlight flight = std::move(at(place));
  at(place).is_lost = true;  // for is_under_way()
  Chunk& chunk = chunks_[place / kChunk];
  chunk.live -= 1;
  if (chunk.live > 0) return flight;
  if (place / kChunk == current_) {
    chunk.given = 0;
  } else {
    close_chunk(place / kChunk);
  }
  return flight;
}

bool SimFlights::is_under_way(int source, int target) const {
  for (const Chunk& chunk : chunks_) {
    if (chunk.live == 0) continue;
    for (std::uint32_t i = 0; i < chunk.given; ++i) {
      const SimFlight& flight = chunk.flights[i];
      if (!flight.is_lost && flight.transfer.source == source && flight.transfer.target == target) return true;
    }
  }
  return false;
}

void SimFlights::open_chunk() {
  if (closed_.empty()) {
    closed_.push_back(static_cast<std::uint32_t>(chunks_.size()));
    chunks_.emplace_back();
  }
  current_ = closed_.back();
  closed_.pop_back();
  std::unique_ptr<SimFlight[]> flights;
  if (spare_.empty()) {
    flights = std::make_unique<SimFlight[]>(kChunk);
  } else {
    flights = std::move(spare_.back());
    spare_.pop_back();
  }
  chunks_[current_] = {.flights = std::move(flights)};
}

void SimFlights::close_chunk(std::uint32_t number) {
  closed_.push_back(number);
  std::unique_ptr<SimFlight[]> flights = std::move(chunks_[number].flights);
  if (spare_.size() < kMostSpare) spare_.push_back(std::move(flights));
}

}  // namespace tulle
