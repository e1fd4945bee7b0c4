#include "select/candidates.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "select/column_bound.hpp"
#include "select/kth_largest.hpp"
#include "select/non_finite.hpp"
#include "select/pack_selected.hpp"
#include "stream/dispatch.hpp"
#include "tulle/base/philox.hpp"
#include "tulle/stream/op.hpp"
#include "tulle/stream/reduction.hpp"

namespace tulle {
namespace {

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

// Stored values of V, 16-bit ones too, in the compute type C, added up as a pass would do it.
template <class V, class C>
class SampledValues {
 public:
  explicit SampledValues(const DenseInput& input)
      : values_(reinterpret_cast<const V*>(input.values)),
        addend_(reinterpret_cast<const V*>(input.addend)),
        decay_(static_cast<C>(input.decay)),
        decays_(input.decay != 1) {}

  C at(std::uint64_t i) const {
    auto value = static_cast<C>(values_[i]);
    if (addend_ == nullptr) return value;
    if (decays_) value *= decay_;
    return static_cast<C>(static_cast<V>(CombineSum<C>()(value, static_cast<C>(addend_[i]))));
  }

 private:
  const V* values_;
  const V* addend_;
  C decay_;
  bool decays_;
};

// Neighbours that are sampled together. A cache miss for every single value takes longer than the pass over all of them
// where blocks are small; whole cache lines would say too little where neighbours are alike.
constexpr std::size_t kRun = 8;

// A run of neighbours from each of equal stretches.
template <class V, class C>
void sample_into(PoolVector<BitsOf<C>>& keys, const DenseInput& input, const CandidateSpec& spec) {
  const Philox random(spec.seed, spec.step);
  const SampledValues<V, C> values(input);
  const std::uint64_t last = input.range.size() - 1;
  const auto stretch = static_cast<double>(input.range.size()) * kRun / static_cast<double>(keys.size());
  for (std::size_t i = 0; i < keys.size(); i += kRun) {
    const double place = static_cast<double>(random.at(i / kRun) >> 32) * 0x1p-32;
    const auto first = static_cast<std::uint64_t>((static_cast<double>(i / kRun) + place) * stretch);
    const std::size_t run = std::min(kRun, keys.size() - i);
    for (std::size_t j = 0; j < run; ++j) keys[i + j] = key_of(values.at(std::min(first + j, last)), spec.side);
  }
}

// Whether so many values have the key of this rank that to gather all of them takes longer than two passes.
bool are_most_equal(const KeySample& sample, std::size_t rank) {
  const std::size_t many = std::max(4 * rank, sample.size() / 16);
  return many < sample.size() && sample.at_rank(rank) == sample.at_rank(many);
}

DenseInput part_of(const DenseInput& input, Range range) {
  DenseInput part = input;
  const std::uint64_t skipped = (range.begin - input.range.begin) * size_of(input.type);
  part.range = range;
  part.values += skipped;
  if (part.residual != nullptr) part.residual += skipped;
  return part;
}

// All values above `low`, and of those equal to it the first ones, so that there are at least spec.most.
Candidates gather_some_ties(const DenseInput& unread, const CandidateSpec& spec, Key low) {
  constexpr std::uint64_t kFirstPart = 1u << 16;
  AnyStream above = gather(unread, {.side = spec.side, .low = low + 1, .expected = spec.k});
  above = admit_non_finite(unread, std::move(above), spec.non_finite);
  const std::uint64_t most = std::max(spec.most, spec.k);
  if (above.nnz() >= spec.k) return {std::move(above), low + 1};
  const DenseInput input = unread.accumulated();
  Range part{input.range.begin, input.range.begin};
  std::vector<AnyStream> parts;
  std::uint64_t found = 0;
  while (found < most && part.end < input.range.end) {
    part = {part.end, std::min(part.end + std::max(kFirstPart, 2 * part.size()), input.range.end)};
    parts.push_back(gather(part_of(input, part), {.side = spec.side, .low = low, .expected = part.size()}));
    found += parts.back().nnz();
  }
  parts.push_back(slice(above, {part.end, input.range.end}));
  AnyStream joined = concatenate(parts, Op::sum(), nullptr, LayoutChoice::sparse);
  return {admit_non_finite(input, std::move(joined), spec.non_finite), low};
}

}  // namespace

KeySample::KeySample(const DenseInput& input, const CandidateSpec& spec, std::uint64_t size) {
  visit_value_type(input.type, [&]<class V>() {
    using C = std::conditional_t<sizeof(V) == 2, float, V>;
    if constexpr (sizeof(C) == sizeof(std::uint32_t)) {
      keys_.resize(size);
      sample_into<V, C>(keys_, input, spec);
    } else {
      wide_keys_.resize(size);
      sample_into<V, C>(wide_keys_, input, spec);
    }
  });
}

Key KeySample::at_rank(std::size_t rank) const {
  if (rank >= size()) return 1;
  const auto key_of_rank = [&](auto keys) -> Key { return kth_largest(keys, rank + 1); };
  return std::max<Key>(keys_.empty() ? key_of_rank(wide_keys_) : key_of_rank(keys_), 1);
}

Candidates gather_candidates(const DenseInput& input, const CandidateSpec& spec) {
  const std::uint64_t count = input.range.size();
  const bool by_sample = spec.k > 0 && is_sampled(input);
  DenseInput unread = by_sample ? added_while_cached(input) : input;
  const KeySample sample(unread, spec, by_sample ? KeySample::default_size(count) : 0);
  for (std::size_t rank = by_sample ? safe_rank(sample.size(), count, spec.k) : 0;; rank *= 4) {
    const Guess guess = spec.k == 0 ? Guess{first_non_finite(input.type), 0} : guess_at(sample, rank, count);
    if (by_sample && guess.low > 1 && are_most_equal(sample, rank)) return gather_some_ties(unread, spec, guess.low);
    AnyStream stream = gather(unread, {.side = spec.side, .low = guess.low, .expected = guess.expected});
    stream = admit_non_finite(input, std::move(stream), spec.non_finite);
    if (stream.nnz() >= spec.k || guess.low == 1) return {std::move(stream), guess.low};
    unread = input.accumulated();
  }
}

AnyStream gather_top_candidates(const DenseInput& input, const CandidateSpec& spec) {
  if (!column_bound_pays(input, spec.k)) return gather_candidates(input, spec).stream;
  GatherSpec what{.side = spec.side, .low = column_bound(input, spec.side, spec.k), .expected = 2 * spec.k};
  AnyStream stream = admit_non_finite(input, gather(input.accumulated(), what), spec.non_finite);
  if (stream.nnz() >= spec.k || what.low == 1) return stream;
  // Some of those that reach the bound were kept out.
  what.low = 1;
  return admit_non_finite(input, gather(input.accumulated(), what), spec.non_finite);
}

}  // namespace tulle
