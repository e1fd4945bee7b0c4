// Everything a program needs that does not depend on MPI. For MPI add "tulle/comm/mpi.hpp".
#pragma once

#include "tulle/collectives/algorithm.hpp"    // IWYU pragma: export
#include "tulle/collectives/collectives.hpp"  // IWYU pragma: export
#include "tulle/comm/communicator.hpp"        // IWYU pragma: export
#include "tulle/comm/sim.hpp"                 // IWYU pragma: export
#include "tulle/comm/threads.hpp"             // IWYU pragma: export
#include "tulle/stream/reduce.hpp"            // IWYU pragma: export
#include "tulle/stream/stream.hpp"            // IWYU pragma: export
