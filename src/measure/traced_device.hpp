// The device of a simulated rank: what it is busy with takes virtual time, in which exchanges go on.
#pragma once

#include "measure/trace_simulation.hpp"
#include "tulle/comm/datagram.hpp"

namespace tulle::measure {

class TracedDevice {
 public:
  TracedDevice(const Communicator& communicator, const TraceSpec& spec);

  /// Seconds of accumulating a gradient and selecting from it, by how it travelled last time.
  double pack_seconds(const gradient::Recipe& recipe, const gradient::Parameter& parameter,
                      const gradient::ParameterStats& stats) const;
  /// Seconds of adding an update to the weights.
  double unpack_seconds(const gradient::Recipe& recipe, const gradient::Parameter& parameter,
                        const gradient::ParameterStats& stats) const;
  /// Of a pass over so many values.
  double pass_seconds(double values) const;

  /// Is busy for so long, added to `account`.
  Task<> work(double seconds, double& account);

  double now() const;
  /// Since it was made.
  double busy_seconds() const { return busy_seconds_; }

 private:
  Communicator communicator_;
  const TraceSpec& spec_;
  double slowness_ = 1;
  double busy_seconds_ = 0;
  DatagramPort clock_;  // nobody writes to it: waiting for a datagram is waiting for the time
};

}  // namespace tulle::measure
