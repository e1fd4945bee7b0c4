#include "server/branch.hpp"

#include <algorithm>
#include <utility>

namespace tulle::server {
namespace {

// How soon a branch that is to end does so. What arrives is seen at once.
constexpr double kLookSeconds = 0.02;

}  // namespace

Branch::Branch(const Communicator& job, const Communicator& group, std::uint32_t port, int servers,
               std::vector<int> places, Take take)
    : job_(job), servers_(servers), places_(std::move(places)), take_(std::move(take)), mail_(group, port, 0) {
  thread_ = std::thread([this] { listen(); });
}

Branch::~Branch() {
  stop();
  thread_.join();
}

std::optional<int> Branch::place_of(int rank) const {
  const auto place = static_cast<std::size_t>(rank - servers_);
  if (rank < servers_ || place >= places_.size() || places_[place] < servers_) return std::nullopt;
  return places_[place];
}

int Branch::rank_of(int place) const {
  return servers_ + static_cast<int>(std::ranges::find(places_, place) - places_.begin());
}

void Branch::listen() {
  while (!is_stopping_) {
    std::optional<Datagram> datagram = mail_.port().receive_for(kLookSeconds);
    if (!datagram) continue;
    Task<> handing = hand_over(std::move(*datagram));
    run_task(job_, handing);
  }
  is_done_ = true;
}

Task<> Branch::hand_over(Datagram datagram) {
  mail_.put(std::move(datagram));
  while (std::optional<Letter> letter = mail_.take()) take_(*this, std::move(*letter));
  co_return;
}

}  // namespace tulle::server
