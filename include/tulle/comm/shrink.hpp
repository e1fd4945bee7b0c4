// A communicator of those that are left.
//
// Threads: as agree(): any thread may call, one agreement of a communicator at a time.
#pragma once

#include "tulle/comm/agree.hpp"

#pragma GCC visibility push(default)
namespace tulle {

/// The survivors as a communicator of their own, with ranks in the same order, the same constants and deadlines, and
/// the epoch of the agreement that made it. The old one is revoked first: what is in flight on it fails on all ranks,
/// so that they come here too.
///
/// Collective among the living, one agree() in cost, and throws what that throws. Where a survivor has died meanwhile,
/// the new communicator has it as a member all the same, and is broken as soon as that is known: shrink it again.
Communicator shrink(Communicator& communicator, const AgreeOptions& options = {});
Request<Communicator> ishrink(Communicator& communicator, const AgreeOptions& options = {});

}  // namespace tulle
#pragma GCC visibility pop
