// What all traced ranks share, and those of a training with a parameter server.
#pragma once

#include "measure/trace_simulation.hpp"

namespace tulle::measure {

/// A rank's measured steps: their mean.
struct TracedStep {
  double seconds = 0, compute_seconds = 0, pack_seconds = 0, unpack_seconds = 0, exposed_seconds = 0;
  double bytes_sent = 0, bytes_received = 0, delivered = 0;

  void add(const TracedStep& one, int of) {
    seconds += one.seconds / of;
    compute_seconds += one.compute_seconds / of;
    pack_seconds += one.pack_seconds / of;
    unpack_seconds += one.unpack_seconds / of;
    exposed_seconds += one.exposed_seconds / of;
    bytes_sent += one.bytes_sent / of;
    bytes_received += one.bytes_received / of;
    delivered += one.delivered / of;
  }
};

/// The first `servers` ranks serve, the others train and append their step. Pushes leave as back-propagation gives
/// gradients; each pull is awaited before the parameter is used again. A server works on one letter after the other:
/// its codings and sums take what they take on one core of the trace's server.
Task<> run_with_server(Communicator& communicator, const TraceSpec& spec, const gradient::Recipe& recipe,
                       const std::vector<float>& common, std::vector<TracedStep>& steps);

}  // namespace tulle::measure
