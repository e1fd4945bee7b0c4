#include "collectives/ledger.hpp"

#include <algorithm>
#include <cstdlib>

#include "stream/dispatch.hpp"
#include "tulle/select/top_k.hpp"
#include "tulle/stream/reduction.hpp"

namespace tulle {
namespace {

// Where fewer than k/2 values reach a threshold of an earlier call, others make up for it.
constexpr std::uint64_t kFewestSurvivors = 2;

template <class Visit>
decltype(auto) visit_pairs(ValueType type, std::uint64_t dimension, Visit visit) {
  return visit_compute_type(type, [&]<class V>() -> decltype(auto) {
    return index_bytes(dimension) == 4 ? visit.template operator()<V, std::uint32_t>()
                                       : visit.template operator()<V, std::uint64_t>();
  });
}

/// Asks in increasing order whether a result has an index. Without a result, or in a dense one, every index is there.
template <class I>
class Membership {
 public:
  Membership(const AnyStream* result, Range range) {
    if (result == nullptr || result->is_dense()) return;
    has_all_ = false;
    part_ = slice(*result, range);
    rest_ = part_.indices_buffer().as<I>();
  }
  bool has(I index) {
    if (has_all_) return true;
    while (!rest_.empty() && rest_.front() < index) rest_ = rest_.subspan(1);
    return !rest_.empty() && rest_.front() == index;
  }

 private:
  bool has_all_ = true;
  AnyStream part_;
  std::span<const I> rest_;
};

/// Visits what was changed, in order: visit(index, value before, was it taken).
template <class V, class I, class Visit>
void for_each_change(const AnyStream& taken, const AnyStream& before, Visit visit) {
  const auto taken_indices = taken.indices_buffer().as<I>(), before_indices = before.indices_buffer().as<I>();
  const auto taken_values = taken.values_buffer().as<V>(), before_values = before.values_buffer().as<V>();
  std::size_t t = 0, b = 0;
  while (t < taken_indices.size() || b < before_indices.size()) {
    const bool is_taken =
        b == before_indices.size() || (t < taken_indices.size() && taken_indices[t] <= before_indices[b]);
    const bool is_added_to =
        t == taken_indices.size() || (b < before_indices.size() && before_indices[b] <= taken_indices[t]);
    const I index = is_taken ? taken_indices[t] : before_indices[b];
    visit(index, is_added_to ? before_values[b] : taken_values[t], is_taken);
    t += is_taken;
    b += is_added_to;
  }
}

/// Pairs that are found one after the other, of which there are at most as many as there is room for.
template <class V, class I>
class Pairs {
 public:
  explicit Pairs(std::uint64_t most)
      : indices_(Buffer::allocate(most * sizeof(I))),
        values_(Buffer::allocate(most * sizeof(V))),
        first_index_(indices_.template as_mutable<I>().data()),
        first_value_(values_.template as_mutable<V>().data()) {}
  void add(I index, V value) {
    first_index_[count_] = index;
    first_value_[count_] = value;
    ++count_;
  }
  AnyStream stream(const Accumulator& accumulator) const {
    return AnyStream::sparse(accumulator.type(), accumulator.dimension(), {0, accumulator.dimension()},
                             indices_.slice(0, count_ * sizeof(I)), values_.slice(0, count_ * sizeof(V)));
  }

 private:
  Buffer indices_, values_;
  I* first_index_;
  V* first_value_;
  std::size_t count_ = 0;
};

bool comes_back(ResidualMode mode, bool is_taken, bool is_delivered) {
  switch (mode) {
    case ResidualMode::global: return !is_delivered;
    case ResidualMode::partial: return !is_delivered || !is_taken;
    case ResidualMode::local: return !is_taken;
  }
  return true;
}

// What does not divide goes to the first of the sharers, one unit each.
template <class V>
V share_of(V value, Sharers sharers) {
  const auto count = static_cast<V>(sharers.count);
  if constexpr (std::is_integral_v<V>) {
    const V rest = value % count, unit = value < 0 ? -1 : 1;
    return static_cast<V>(value / count + (sharers.index < std::abs(rest) ? unit : 0));
  } else {
    return value / count;
  }
}

}  // namespace

Ledger::~Ledger() { roll_back(); }

// The sum of the block takes the accumulator's place; what was there is kept.
AnyStream Ledger::add(const AnyStream& received) {
  if (received.nnz() == 0 || received.is_phantom()) return {};
  const AnyStream sparse = to_sparse(received, Op::sum());
  Buffer before = Buffer::allocate(sparse.values_buffer().size());
  visit_pairs(sparse.type(), sparse.dimension(), [&]<class V, class I>() {
    const std::span<V> values = accumulator_.values<V>(), saved = before.as_mutable<V>();
    const auto indices = sparse.indices_buffer().as<I>();
    const auto added = sparse.values_buffer().as<V>();
    for (std::size_t i = 0; i < indices.size(); ++i) {
      saved[i] = values[indices[i]];
      values[indices[i]] = CombineSum<V>()(values[indices[i]], added[i]);
    }
  });
  operation_.charge({.sparse_items = sparse.nnz()});
  return AnyStream::sparse(sparse.type(), sparse.dimension(), sparse.range(), sparse.indices_buffer(), before);
}

void Ledger::charge_selection(Range block) {
  operation_.charge(operation_.profile().gamma_select_seconds * static_cast<double>(block.size()));
}

template <class Select>
AnyStream Ledger::take(Range block, Select select) {
  const double started = operation_.seconds();
  entries_.back().taken =
      visit_compute_type(accumulator_.type(), [&]<class V>() { return select(accumulator_.values<V>()); });
  charge_selection(block);
  select_seconds_ += operation_.seconds() - started;
  return entries_.back().taken;
}

void Ledger::begin_entry(Range block) {
  const AnyStream nothing = AnyStream::empty(accumulator_.type(), accumulator_.dimension(), block);
  entries_.push_back({nothing, nothing});
}

AnyStream Ledger::take_top_k(Range block, std::uint64_t k, const AnyStream* received) {
  begin_entry(block);
  if (accumulator_.is_phantom()) {
    charge_selection(block);
    const std::uint64_t nnz = std::min(k, block.size());
    return AnyStream::phantom(accumulator_.type(), accumulator_.dimension(), block, Layout::sparse, nnz);
  }
  if (received != nullptr && received->nnz() > 0) entries_.back().before = add(*received);
  return take(block, [&]<class V>(std::span<V> values) { return tulle::take_top_k(values, block, k); });
}

TakenAbove Ledger::take_above(Range block, double threshold, std::uint64_t k) {
  begin_entry(block);
  const auto above = [&]<class V>(std::span<V> values) { return tulle::take_above(values, block, threshold); };
  TakenAbove taken{take(block, above), 0};
  taken.passed = taken.stream.nnz();
  if (taken.passed > k) {
    taken.stream = split_top_k(taken.stream, k).kept;
    return_all_but(taken.stream);
  } else if (taken.passed * kFewestSurvivors < k) {
    const auto with_more = [&]<class V>(std::span<V> values) {
      const AnyStream more = tulle::take_top_k(values, block, k - taken.passed);
      return reduce(taken.stream, more, Op::sum(), nullptr, LayoutChoice::sparse);
    };
    taken.stream = take(block, with_more);
  }
  return taken;
}

void Ledger::return_all_but(const AnyStream& kept) {
  AnyStream& taken = entries_.back().taken;
  if (kept.is_phantom() || kept.nnz() == taken.nnz()) return;
  visit_pairs(taken.type(), taken.dimension(), [&]<class V, class I>() {
    const std::span<V> values = accumulator_.values<V>();
    const auto indices = taken.indices_buffer().as<I>();
    const auto amounts = taken.values_buffer().as<V>();
    Membership<I> stays_out(&kept, taken.range());
    for (std::size_t i = 0; i < indices.size(); ++i) {
      if (!stays_out.has(indices[i])) values[indices[i]] = amounts[i];
    }
  });
  operation_.charge({.sparse_items = taken.nnz()});
  taken = kept;
}

void Ledger::drop(AnyStream dropped, Sharers sharers) {
  if (mode_ != ResidualMode::global || dropped.nnz() == 0 || dropped.is_phantom()) return;
  dropped_.push_back({std::move(dropped), sharers});
}

// In the order of the blocks, so that what left is in the order of the indices.
void Ledger::settle_entries(const AnyStream* result) {
  std::ranges::sort(entries_, {}, [](const Entry& entry) { return entry.taken.range().begin; });
  std::uint64_t most = 0;
  for (const Entry& entry : entries_) most += entry.taken.nnz();
  visit_pairs(accumulator_.type(), accumulator_.dimension(), [&]<class V, class I>() {
    const std::span<V> values = accumulator_.values<V>();
    Pairs<V, I> left(most);
    for (const Entry& entry : entries_) {
      Membership<I> delivered(result, entry.taken.range());
      for_each_change<V, I>(entry.taken, entry.before, [&](I index, V before, bool is_taken) {
        const bool returns = comes_back(mode_, is_taken, delivered.has(index));
        if (returns) values[index] = before;
        if (is_taken && !returns && before != V{0}) left.add(index, before);
      });
    }
    left_ = left.stream(accumulator_);
  });
  entries_.clear();
}

void Ledger::return_dropped(const AnyStream* result) {
  for (const Dropped& dropped : dropped_) {
    const AnyStream sparse = to_sparse(dropped.stream, Op::sum());
    visit_pairs(sparse.type(), sparse.dimension(), [&]<class V, class I>() {
      const std::span<V> values = accumulator_.values<V>();
      const auto indices = sparse.indices_buffer().as<I>();
      const auto lost = sparse.values_buffer().as<V>();
      Membership<I> delivered(result, sparse.range());
      for (std::size_t i = 0; i < indices.size(); ++i) {
        if (!delivered.has(indices[i])) continue;
        V& value = values[indices[i]];
        value = CombineSum<V>()(value, share_of(lost[i], dropped.sharers));
      }
    });
  }
  dropped_.clear();
}

void Ledger::settle(const AnyStream& result) {
  if (!accumulator_.is_phantom()) {
    settle_entries(&result);
    return_dropped(&result);
  }
  entries_.clear();
}

void Ledger::settle_without_result() {
  if (!accumulator_.is_phantom()) {
    settle_entries(nullptr);
    return_dropped(nullptr);
  }
  entries_.clear();
}

// Entries are of different blocks, so their order does not matter.
void Ledger::roll_back() {
  if (accumulator_.is_phantom()) return;
  for (const Entry& entry : entries_) {
    visit_pairs(accumulator_.type(), accumulator_.dimension(), [&]<class V, class I>() {
      for_each_change<V, I>(entry.taken, entry.before,
                            [&](I index, V before, bool) { accumulator_.values<V>()[index] = before; });
    });
  }
  entries_.clear();
}

AnyStream difference(const AnyStream& before, const AnyStream& after) {
  if (before.is_phantom()) return AnyStream::empty(before.type(), before.dimension(), before.range());
  Buffer lost = Buffer::allocate(before.values_buffer().size());
  visit_compute_type(before.type(), [&]<class V>() {
    const auto from = before.values_buffer().as<V>(), kept = after.values_buffer().as<V>();
    std::ranges::transform(from, kept, lost.as_mutable<V>().begin(), std::minus<V>());
  });
  if (before.is_dense()) return AnyStream::dense(before.type(), before.dimension(), before.range(), std::move(lost));
  return AnyStream::sparse(before.type(), before.dimension(), before.range(), before.indices_buffer(), std::move(lost));
}

}  // namespace tulle
