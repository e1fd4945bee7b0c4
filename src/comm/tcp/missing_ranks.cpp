#include "comm/tcp/missing_ranks.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace tulle {

std::string name_ranks(const std::vector<int>& ranks) {
  constexpr std::size_t kMostNamed = 16;
  std::string names;
  for (std::size_t i = 0; i < std::min(ranks.size(), kMostNamed); ++i) {
    names += fmt::format("{}{}", i == 0 ? "" : ", ", ranks[i]);
  }
  if (ranks.size() > kMostNamed) names += fmt::format(" and {} more", ranks.size() - kMostNamed);
  return (ranks.size() == 1 ? "rank " : "ranks ") + names;
}

Error missing_ranks_error(const std::vector<int>& ranks, const std::string& verb, double seconds,
                          const std::string& known) {
  return Error(ErrorKind::deadline, fmt::format("{} did not {} within {} s{}", name_ranks(ranks), verb, seconds, known))
      .with_peer(ranks.front());
}

}  // namespace tulle
