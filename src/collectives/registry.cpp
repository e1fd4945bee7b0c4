#include <fmt/format.h>

#include <array>

#include "collectives/algorithms.hpp"
#include "tulle/base/error.hpp"

namespace tulle {
namespace {

#define TULLE_ROW(name, kind, summary, paper, needs)                                                            \
  Algorithm {                                                                                                   \
    #name, OperationKind::kind, summary, paper, Exactness::exact, Needs::needs, algorithms::name##_cost,        \
        algorithms::name                                                                                        \
  }

constexpr std::array kRegistry = {
    TULLE_ROW(ssar_recursive_double, allreduce, "sparse, exchanges growing sums in log2 P rounds; for little data",
              "SparCML 4.1", messages),
    TULLE_ROW(ssar_split_allgather, allreduce, "sparse, owners reduce blocks, then sparse allgather; for more data",
              "SparCML 4.1", messages),
    TULLE_ROW(dsar_split_allgather, allreduce, "sparse in, dense out: owners reduce blocks, then dense allgather",
              "SparCML 4.1", messages),
    TULLE_ROW(dense_recursive_double, allreduce, "dense, whole vectors in log2 P rounds; for short vectors",
              "Thakur et al. 2005", messages),
    TULLE_ROW(dense_ring, allreduce, "dense, pipelined round a ring; for long vectors", "Patarasuk and Yuan 2009",
              messages),
    TULLE_ROW(dense_rabenseifner, allreduce, "dense, recursive halving, then allgather", "Rabenseifner 2004",
              messages),
    TULLE_ROW(dense_split_allgather, allreduce, "dense, owners reduce blocks sent directly, then allgather",
              "SparCML 5", messages),
    TULLE_ROW(mpi_native, allreduce, "dense, the transport's own allreduce (MPI_Allreduce)", "MPI 4.0",
              native_allreduce),
    TULLE_ROW(sparse_allgather, allgather, "everyone gets everyone's stream; overlaps are reduced", "SparCML 4.1",
              messages),
    TULLE_ROW(reduce_scatter, reduce_scatter, "everyone gets one block of the sum", "SparCML 4.1", messages),
    TULLE_ROW(reduce, reduce, "the sum at one rank, by a binomial tree", "Thakur et al. 2005", messages),
    TULLE_ROW(broadcast, broadcast, "one rank's stream to everyone, by a binomial tree", "Thakur et al. 2005",
              messages),
};
#undef TULLE_ROW

}  // namespace

std::string_view to_string(Exactness exactness) {
  switch (exactness) {
    case Exactness::exact: return "exact";
  }
  return "unknown";
}

std::span<const Algorithm> registry() { return kRegistry; }

const Algorithm& find_algorithm(OperationKind kind, std::string_view name) {
  for (const Algorithm& algorithm : kRegistry) {
    if (algorithm.kind == kind && algorithm.name == name) return algorithm;
  }
  std::string allowed(kAuto);
  for (const Algorithm& algorithm : kRegistry) {
    if (algorithm.kind == kind) allowed += fmt::format(", {}", algorithm.name);
  }
  throw Error(ErrorKind::bad_input,
              fmt::format("no algorithm for {} is called '{}'; there are {}", to_string(kind), name, allowed));
}

std::uint8_t algorithm_number(const Algorithm& algorithm) {
  return static_cast<std::uint8_t>(&algorithm - kRegistry.data() + 1);
}

const Algorithm& choose(OperationKind kind, const CostInput& input) {
  const Algorithm* cheapest = nullptr;
  double lowest_seconds = 0;
  for (const Algorithm& algorithm : kRegistry) {
    if (algorithm.kind != kind || algorithm.needs != Needs::messages) continue;
    const double seconds = algorithm.cost_seconds(input);
    if (cheapest != nullptr && seconds >= lowest_seconds) continue;
    cheapest = &algorithm;
    lowest_seconds = seconds;
  }
  return *cheapest;
}

}  // namespace tulle
