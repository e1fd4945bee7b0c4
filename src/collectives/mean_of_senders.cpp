// mean_of_senders: for each index the mean over the ranks that sent it, contributions clipped to the median norm.
// SparseLoCo's aggregate. The arithmetic is mean_of_holders() of stream; what is decided here is each rank's factor.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tulle/base/error.hpp"
#include "tulle/collectives/gather_contributions.hpp"

namespace tulle {
namespace {

void require_finite(const Contributions& contributions) {
  for (std::size_t rank = 0; rank < contributions.by_rank.size(); ++rank) {
    const double norm = contributions.by_rank[rank].norm;
    if (std::isfinite(norm)) continue;
    throw Error(ErrorKind::bad_input,
                fmt::format("the norm of rank {}'s contribution is {}; no median can be made of it", rank, norm));
  }
}

// Ranks that sent nothing do not vote: they would pull the others to 0.
double median_norm(const Contributions& contributions) {
  PoolVector<double> norms;
  for (const Contribution& contribution : contributions.by_rank) {
    if (contribution.stream.nnz() > 0) norms.push_back(contribution.norm);
  }
  if (norms.empty()) return 0;
  const auto middle = norms.begin() + static_cast<std::ptrdiff_t>((norms.size() - 1) / 2);
  std::ranges::nth_element(norms, middle);
  return *middle;
}

PoolVector<double> factors_of(const Contributions& contributions, Clipping clipping) {
  PoolVector<double> factors(contributions.by_rank.size(), 1.0);
  if (clipping == Clipping::none) return factors;
  require_finite(contributions);
  const double median = median_norm(contributions);
  for (std::size_t rank = 0; rank < factors.size(); ++rank) {
    const double norm = contributions.by_rank[rank].norm;
    if (norm > median) factors[rank] = median / norm;
  }
  return factors;
}

}  // namespace

std::string_view to_string(Clipping clipping) {
  switch (clipping) {
    case Clipping::none: return "none";
    case Clipping::median_norm: return "median_norm";
  }
  return "unknown";
}

AnyStream mean_of_senders(const Contributions& contributions, Clipping clipping, KernelReport* report) {
  const PoolVector<double> factors = factors_of(contributions, clipping);
  PoolVector<AnyStream> streams;
  streams.reserve(contributions.by_rank.size());
  for (const Contribution& contribution : contributions.by_rank) streams.push_back(contribution.stream);
  return mean_of_holders(streams, factors, report);
}

}  // namespace tulle
