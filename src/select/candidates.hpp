// A few values among which the k largest are sure to be, found by one pass over the data.
//
// How it works. A *sample* of the data, drawn by a counter-based generator, suggests a key that a little more than k
// values reach; one pass gathers those that do. Where fewer than k did (one time in thousands, or where the data is
// far from what the sample shows), the key is lowered and the pass repeated, at last with all non-zeros. So the sample
// decides the cost and never the result. Where most values are equal, which the sample shows, of those equal to the key
// only the first are gathered: a second pass over what the first one left costs less than writing pairs of all.
//
// Who wants no more than the k largest has small inputs looked through twice, while they are in the cache: the first
// pass finds a bound without a sample (column_bound.hpp). Who tells the bound, as RedSync's searches do by their
// threshold, keeps the sample's.
#pragma once

#include <algorithm>

#include "select/dense_input.hpp"
#include "select/key.hpp"
#include "tulle/base/buffer.hpp"
#include "tulle/select/selector.hpp"

namespace tulle {

struct CandidateSpec {
  Side side = Side::both;
  std::uint64_t k = 0;
  std::uint64_t most = 0;  ///< the most that are taken; k where that is more
  NonFinite non_finite = NonFinite::error;
  std::uint64_t seed = 0;
  std::uint64_t step = 0;
};

/// Whether a sample says something about the input: below a few thousand values it costs as much as it saves.
inline bool is_sampled(const DenseInput& input) { return input.range.size() >= 1u << 12; }

/// Keys of some values from all over the input. Reads the addend with the values.
class KeySample {
 public:
  KeySample(const DenseInput& input, const CandidateSpec& spec, std::uint64_t size);

  /// Enough to tell where the k-th largest lies to an eighth of k, from k = count / 256 on, where neighbours differ.
  static std::uint64_t default_size(std::uint64_t count) { return std::min<std::uint64_t>(1u << 14, count / 32); }

  std::size_t size() const { return std::max(keys_.size(), wide_keys_.size()); }
  /// The sampled key that `rank` others are not below; 1, which all non-zeros reach, where there is none.
  Key at_rank(std::size_t rank) const;

 private:
  PoolVector<std::uint32_t> keys_;  ///< of 32-bit compute types
  PoolVector<std::uint64_t> wide_keys_;
};

struct Candidates {
  AnyStream stream;  ///< in the input's compute type
  Key low = 1;  ///< no keys below it; all above it, and of those equal to it all or the first, `most` in all or more
};

/// At least the k largest keys, or all values with a key where there are fewer. Adds the addend; treats NaN and
/// infinity as the policy says.
Candidates gather_candidates(const DenseInput& input, const CandidateSpec& spec);

/// The same for who does not ask which others are among them.
AnyStream gather_top_candidates(const DenseInput& input, const CandidateSpec& spec);

}  // namespace tulle
