#include <fmt/format.h>

#include <array>

#include "base/did_you_mean.hpp"
#include "collectives/algorithms.hpp"
#include "tulle/base/error.hpp"

namespace tulle {
namespace {

#define TULLE_ROW(name, kind, needs, input, codes_values, dense_result, summary, paper)                       \
  Algorithm {                                                                                                 \
#name, OperationKind::kind, summary, paper, Exactness::exact, Needs::needs, Takes::stream, Layout::input, \
        codes_values, dense_result, algorithms::name##_cost, algorithms::name                                 \
  }
// Rows that take an accumulator.
#define TULLE_LOSSY_ROW(name, kind, summary, paper)                                                                  \
  Algorithm {                                                                                                        \
#name, OperationKind::kind, summary, paper, Exactness::lossy_with_residual, Needs::messages, Takes::accumulator, \
        Layout::dense, true, false, algorithms::name##_cost, algorithms::name                                        \
  }

constexpr std::array kRegistry = {
    TULLE_ROW(ssar_recursive_double, allreduce, messages, sparse, false, false,
              "sparse, exchanges growing sums in log2 P rounds; for little data", "SparCML 4.1"),
    TULLE_ROW(ssar_split_allgather, allreduce, messages, sparse, true, false,
              "sparse, owners reduce blocks, then sparse allgather; for more data", "SparCML 4.1"),
    TULLE_ROW(dsar_split_allgather, allreduce, messages, sparse, true, true,
              "sparse in, dense out: owners reduce blocks, then dense allgather", "SparCML 4.1"),
    TULLE_ROW(two_level, allreduce, messages, sparse, true, false,
              "sparse, inside nodes first, then between their leaders, then inside again", "SparCML, SC'19"),
    TULLE_ROW(dense_recursive_double, allreduce, messages, dense, false, true,
              "dense, whole vectors in log2 P rounds; for short vectors", "Thakur et al. 2005"),
    TULLE_ROW(dense_ring, allreduce, messages, dense, false, true, "dense, pipelined round a ring; for long vectors",
              "Patarasuk and Yuan 2009"),
    TULLE_ROW(dense_rabenseifner, allreduce, messages, dense, false, true, "dense, recursive halving, then allgather",
              "Rabenseifner 2004"),
    TULLE_ROW(dense_split_allgather, allreduce, messages, dense, true, true,
              "dense, owners reduce blocks sent directly, then allgather", "SparCML 5"),
    TULLE_ROW(mpi_native, allreduce, native_allreduce, dense, false, true,
              "dense, the transport's own allreduce (MPI_Allreduce)", "MPI 4.0"),
    TULLE_ROW(sparse_allgather, allgather, messages, sparse, true, false,
              "everyone gets everyone's stream; overlaps are reduced", "SparCML 4.1"),
    TULLE_ROW(dense_allgather, allgather, messages, dense, false, true, "everyone gets everyone's block, dense",
              "SparCML 6"),
    TULLE_ROW(reduce_scatter, reduce_scatter, messages, sparse, false, false, "everyone gets one block of the sum",
              "SparCML 4.1"),
    TULLE_ROW(reduce, reduce, messages, sparse, false, false, "the sum at one rank, by a binomial tree",
              "Thakur et al. 2005"),
    TULLE_ROW(broadcast, broadcast, messages, sparse, false, false, "one rank's stream to everyone, by a binomial tree",
              "Thakur et al. 2005"),
    TULLE_LOSSY_ROW(spardl, allreduce, "top k by block, scattered in bags, then gathered; any P, teams", "SparDL 3"),
    TULLE_LOSSY_ROW(topka, allreduce, "everyone's top k to everyone", "SparDL 5"),
    TULLE_LOSSY_ROW(topkdsa, allreduce, "everyone's top k, split and gathered", "SparCML 4.1"),
    TULLE_LOSSY_ROW(gtopk, allreduce, "top k at each merge of a tree, then broadcast", "Shi et al. 2019"),
    TULLE_LOSSY_ROW(oktopk, allreduce, "thresholds and regions used again, split, filtered, gathered",
                    "Li and Hoefler 2022"),
    TULLE_LOSSY_ROW(spar_reduce_scatter, reduce_scatter, "everyone gets the top k/P of one block of the sum",
                    "SparDL 3.1"),
};
#undef TULLE_LOSSY_ROW
#undef TULLE_ROW

}  // namespace

std::string_view to_string(Exactness exactness) {
  switch (exactness) {
    case Exactness::exact: return "exact";
    case Exactness::lossy_with_residual: return "lossy_with_residual";
  }
  return "unknown";
}

std::string_view to_string(CodedValues values) {
  switch (values) {
    case CodedValues::sums: return "sums";
    case CodedValues::contributions: return "contributions";
    case CodedValues::both: return "both";
  }
  return "unknown";
}

std::string_view to_string(ResidualMode mode) {
  switch (mode) {
    case ResidualMode::global: return "global";
    case ResidualMode::partial: return "partial";
    case ResidualMode::local: return "local";
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
  throw Error(ErrorKind::bad_input, fmt::format("no algorithm for {} is called '{}'; there are {}{}", to_string(kind),
                                                name, allowed, did_you_mean(name, allowed)));
}

std::uint8_t algorithm_number(const Algorithm& algorithm) {
  return static_cast<std::uint8_t>(&algorithm - kRegistry.data() + 1);
}

}  // namespace tulle
