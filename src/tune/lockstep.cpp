#include "tune/lockstep.hpp"

#include "comm/bruck.hpp"
#include "comm/gather_bytes.hpp"

namespace tulle {

Step Lockstep::take_steps(int count) {
  const Step first = next_step_;
  next_step_ = static_cast<Step>(next_step_ + count);
  return first;
}

Task<> Lockstep::barrier() { co_await meet(operation_, take_steps(patterns::bruck_rounds(size()))); }

}  // namespace tulle
