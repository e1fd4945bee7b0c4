// Everything a program needs that does not depend on MPI. For MPI add "tulle/comm/mpi.hpp".
#pragma once

#include "tulle/collectives/collectives.hpp"           // IWYU pragma: export
#include "tulle/collectives/gather_contributions.hpp"  // IWYU pragma: export
#include "tulle/collectives/registry.hpp"              // IWYU pragma: export
#include "tulle/comm/admission.hpp"                    // IWYU pragma: export
#include "tulle/comm/communicator.hpp"                 // IWYU pragma: export
#include "tulle/comm/control.hpp"                      // IWYU pragma: export
#include "tulle/comm/datagram.hpp"                     // IWYU pragma: export
#include "tulle/comm/settings.hpp"                     // IWYU pragma: export
#include "tulle/comm/sim.hpp"                          // IWYU pragma: export
#include "tulle/comm/tcp.hpp"                          // IWYU pragma: export
#include "tulle/comm/threads.hpp"                      // IWYU pragma: export
#include "tulle/stream/reduction.hpp"                  // IWYU pragma: export
#include "tulle/stream/stream.hpp"                     // IWYU pragma: export
#include "tulle/version.hpp"                           // IWYU pragma: export
