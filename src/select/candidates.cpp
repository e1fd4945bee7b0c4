#include "select/candidates.hpp"

#include <algorithm>
#include <cmath>

#include "select/kth_largest.hpp"
#include "select/non_finite.hpp"
#include "select/pack_selected.hpp"
#include "stream/dispatch.hpp"
#include "tulle/base/philox.hpp"

namespace tulle {
namespace {

// Below this size all non-zeros are candidates: the sample would cost as much as it saves.
constexpr std::uint64_t kSmallInput = 1u << 12;

// Up to this size the addend is added before the sample is drawn, so that the sample finds the sums in the cache. Of
// larger inputs the first sums have been put out when the last are made, and each would be read once more.
constexpr std::uint64_t kCachedBytes = 1u << 18;

// The sampled rank that lies below the k-th largest value but for one time in thousands: the mean and four deviations.
std::size_t safe_rank(std::size_t sample, std::uint64_t count, std::uint64_t k) {
  const double mean = static_cast<double>(sample) * static_cast<double>(k) / static_cast<double>(count);
  return static_cast<std::size_t>(mean + 4 * std::sqrt(mean)) + 8;
}

// A key, and about how many values reach it.
struct Guess {
  Key low;
  std::uint64_t expected;
};

Guess guess_at(const KeySample& sample, std::size_t rank, std::uint64_t count) {
  const Key low = sample.at_rank(rank);
  if (low == 1) return {low, count};
  const std::uint64_t expected = rank * (count / sample.size() + 1);
  return {low, expected + expected / 4};
}

// Stored values of V, 16-bit ones too, in the compute type C.
template <class V, class C>
C value_at(const DenseInput& input, std::uint64_t i) {
  auto value = static_cast<C>(reinterpret_cast<const V*>(input.values)[i]);
  if (input.addend == nullptr) return value;
  if (input.decay != 1) value *= static_cast<C>(input.decay);
  const auto addend = static_cast<C>(reinterpret_cast<const V*>(input.addend)[i]);
  return static_cast<C>(static_cast<V>(CombineSum<C>()(value, addend)));
}

// Neighbours that are sampled together. A cache miss for every single value takes longer than the pass over all of them
// where blocks are small; whole cache lines would say too little where neighbours are alike.
constexpr std::size_t kRun = 8;

// A run of neighbours from each of equal stretches.
template <class V, class C>
void sample_into(PoolVector<Key>& keys, const DenseInput& input, const CandidateSpec& spec) {
  const Philox random(spec.seed, spec.step);
  const auto stretch = static_cast<double>(input.range.size()) * kRun / static_cast<double>(keys.size());
  for (std::size_t i = 0; i < keys.size(); i += kRun) {
    const double place = static_cast<double>(random.at(i / kRun) >> 32) * 0x1p-32;
    const auto first = static_cast<std::uint64_t>((static_cast<double>(i / kRun) + place) * stretch);
    for (std::size_t j = i; j < std::min(i + kRun, keys.size()); ++j) {
      const std::uint64_t index = std::min(first + (j - i), input.range.size() - 1);
      keys[j] = key_of(value_at<V, C>(input, index), spec.side);
    }
  }
}

}  // namespace

KeySample::KeySample(const DenseInput& input, const CandidateSpec& spec, std::uint64_t size) : keys_(size) {
  visit_value_type(input.type, [&]<class V>() {
    using C = std::conditional_t<sizeof(V) == 2, float, V>;
    sample_into<V, C>(keys_, input, spec);
  });
}

Key KeySample::at_rank(std::size_t rank) const {
  if (rank >= keys_.size()) return 1;
  PoolVector<Key> keys = keys_;
  return std::max<Key>(kth_largest(keys, rank + 1), 1);
}

Candidates gather_candidates(const DenseInput& input, const CandidateSpec& spec) {
  const std::uint64_t count = input.range.size();
  const bool by_sample = spec.k > 0 && count >= kSmallInput;
  DenseInput unread = input;
  if (by_sample && input.addend != nullptr && count * size_of(input.type) <= kCachedBytes) {
    add_addend(input);
    unread = input.accumulated();
  }
  const KeySample sample(unread, spec, by_sample ? KeySample::default_size(count) : 0);
  for (std::size_t rank = by_sample ? safe_rank(sample.size(), count, spec.k) : 0;; rank *= 4) {
    const Guess guess = spec.k == 0 ? Guess{first_non_finite(input.type), 0} : guess_at(sample, rank, count);
    AnyStream stream = gather(unread, {.side = spec.side, .low = guess.low, .expected = guess.expected});
    stream = admit_non_finite(input, std::move(stream), spec.non_finite);
    if (stream.nnz() >= spec.k || guess.low == 1) return {std::move(stream), guess.low};
    unread = input.accumulated();
  }
}

}  // namespace tulle
