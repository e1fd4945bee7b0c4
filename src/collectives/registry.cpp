#include <fmt/format.h>

#include <array>

#include "collectives/algorithms.hpp"
#include "tulle/base/error.hpp"

namespace tulle {
namespace {

#define TULLE_ROW(name, kind, needs, input, dense_result, summary, paper)                                  \
  Algorithm {                                                                                              \
    #name, OperationKind::kind, summary, paper, Exactness::exact, Needs::needs, Layout::input, dense_result, \
        algorithms::name##_cost, algorithms::name                                                          \
  }

constexpr std::array kRegistry = {
    TULLE_ROW(ssar_recursive_double, allreduce, messages, sparse, false,
              "sparse, exchanges growing sums in log2 P rounds; for little data", "SparCML 4.1"),
    TULLE_ROW(ssar_split_allgather, allreduce, messages, sparse, false,
              "sparse, owners reduce blocks, then sparse allgather; for more data", "SparCML 4.1"),
    TULLE_ROW(dsar_split_allgather, allreduce, messages, sparse, true,
              "sparse in, dense out: owners reduce blocks, then dense allgather", "SparCML 4.1"),
    TULLE_ROW(dense_recursive_double, allreduce, messages, dense, true,
              "dense, whole vectors in log2 P rounds; for short vectors", "Thakur et al. 2005"),
    TULLE_ROW(dense_ring, allreduce, messages, dense, true, "dense, pipelined round a ring; for long vectors",
              "Patarasuk and Yuan 2009"),
    TULLE_ROW(dense_rabenseifner, allreduce, messages, dense, true, "dense, recursive halving, then allgather",
              "Rabenseifner 2004"),
    TULLE_ROW(dense_split_allgather, allreduce, messages, dense, true,
              "dense, owners reduce blocks sent directly, then allgather", "SparCML 5"),
    TULLE_ROW(mpi_native, allreduce, native_allreduce, dense, true,
              "dense, the transport's own allreduce (MPI_Allreduce)", "MPI 4.0"),
    TULLE_ROW(sparse_allgather, allgather, messages, sparse, false,
              "everyone gets everyone's stream; overlaps are reduced", "SparCML 4.1"),
    TULLE_ROW(reduce_scatter, reduce_scatter, messages, sparse, false, "everyone gets one block of the sum",
              "SparCML 4.1"),
    TULLE_ROW(reduce, reduce, messages, sparse, false, "the sum at one rank, by a binomial tree",
              "Thakur et al. 2005"),
    TULLE_ROW(broadcast, broadcast, messages, sparse, false, "one rank's stream to everyone, by a binomial tree",
              "Thakur et al. 2005"),
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
