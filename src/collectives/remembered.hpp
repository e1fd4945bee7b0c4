// Calls that end in the order of calls, without being blocking: what they teach is kept with the channel.
#pragma once

#include "tulle/collectives/collectives.hpp"

namespace tulle {

/// An allreduce that the caller awaits at once, in a thread or in a coroutine, as all ranks do.
/// REQUIRES: options.awaited_at_once, and the communicator's channel outlives the request.
Request<Outcome> start_remembered(Communicator& communicator, AnyStream stream, const CallOptions& options);
/// The same of a dense vector in the caller's memory.
Request<Outcome> start_remembered_in_place(Communicator& communicator, Accumulator vector, const CallOptions& options);

}  // namespace tulle
