// The coroutine and the cost function of every row: one file each, all of the same two signatures.
#pragma once

#include "tulle/collectives/registry.hpp"

namespace tulle {

#define TULLE_ALGORITHM(name)                                                    \
  Task<Outcome> name(Operation&, Payload&, const CallOptions&, AlgorithmState*); \
  double name##_cost(const CostInput&);

namespace algorithms {
TULLE_ALGORITHM(ssar_recursive_double)
TULLE_ALGORITHM(ssar_split_allgather)
TULLE_ALGORITHM(dsar_split_allgather)
TULLE_ALGORITHM(two_level)
TULLE_ALGORITHM(dense_recursive_double)
TULLE_ALGORITHM(dense_ring)
TULLE_ALGORITHM(dense_rabenseifner)
TULLE_ALGORITHM(dense_split_allgather)
TULLE_ALGORITHM(mpi_native)
TULLE_ALGORITHM(sparse_allgather)
TULLE_ALGORITHM(dense_allgather)
TULLE_ALGORITHM(reduce_scatter)
TULLE_ALGORITHM(reduce)
TULLE_ALGORITHM(broadcast)
TULLE_ALGORITHM(spardl)
TULLE_ALGORITHM(topka)
TULLE_ALGORITHM(topkdsa)
TULLE_ALGORITHM(gtopk)
TULLE_ALGORITHM(oktopk)
TULLE_ALGORITHM(spar_reduce_scatter)
}  // namespace algorithms

#undef TULLE_ALGORITHM

}  // namespace tulle
