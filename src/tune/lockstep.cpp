#include "tune/lockstep.hpp"

#include "collectives/patterns/bruck.hpp"

namespace tulle {

Step Lockstep::take_steps(int count) {
  const Step first = next_step_;
  next_step_ = static_cast<Step>(next_step_ + count);
  return first;
}

Task<> Lockstep::barrier() {
  Step step = take_steps(patterns::bruck_rounds(size()));
  for (int distance = 1; distance < size(); distance *= 2, ++step) {
    operation_.send((rank() + distance) % size(), step, {}, 0);
    co_await operation_.receive((rank() + size() - distance) % size(), step);
  }
}

}  // namespace tulle
