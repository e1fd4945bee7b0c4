// What a row takes out of an accumulator while it communicates, and what of it comes back in the end.
//
// How it works. A row *takes* the largest values of a block, after adding what it has *received* for that block; what
// is taken is sent on. Every change is written down with the value that was there before. Later selections *drop*
// values that are on their way. Once the result is known the ledger is *settled*: SparDL's Algorithm 1. Where the
// result has an index, what was sent of it has arrived or was dropped, and in residual mode `global` whoever dropped it
// keeps it. Where the result lacks an index, nothing of it has arrived, and every rank gets back what it had.
#pragma once

#include "collectives/exchange.hpp"
#include "tulle/collectives/accumulator.hpp"

namespace tulle {

/// What a threshold of an earlier call let pass.
struct TakenAbove {
  AnyStream stream;
  std::uint64_t passed = 0;  ///< values that reach it, taken or not
};

class Ledger {
 public:
  Ledger(Operation& operation, Accumulator accumulator, ResidualMode mode)
      : operation_(operation), accumulator_(accumulator), mode_(mode) {}
  /// Gives everything back that was not settled: an operation that fails leaves the accumulator as it was.
  ~Ledger();
  Ledger(const Ledger&) = delete;
  Ledger& operator=(const Ledger&) = delete;

  /// Adds `received`, where there is any, to the block and takes its k largest values. REQUIRES: a block is taken once.
  AnyStream take_top_k(Range block, std::uint64_t k, const AnyStream* received = nullptr);
  /// Takes the block's values of at least `threshold`: the k largest of them where they are more than k, and the
  /// largest others too where they are fewer than k/2.
  TakenAbove take_above(Range block, double threshold, std::uint64_t k);
  /// Of what was taken last, everything but `kept` returns to the accumulator. REQUIRES: kept is a part of it.
  void return_all_but(const AnyStream& kept);

  /// `dropped` is no longer on its way to the result. All of the `sharers` drop the same, and each keeps its share of
  /// every value; the shares of an integer differ by at most one and add up to it.
  void drop(AnyStream dropped, Sharers sharers = {});

  /// All ranks hold `result`.
  void settle(const AnyStream& result);
  /// The rank does not know what became of the values it sent: they count as delivered.
  void settle_without_result();

  /// What left the accumulator for good, as it was before. REQUIRES: settled.
  AnyStream taken() const { return left_; }
  /// Spent on selecting.
  double select_seconds() const { return select_seconds_; }

 private:
  struct Entry {
    AnyStream taken;
    AnyStream before;  // where something was received: the values that were there
  };
  struct Dropped {
    AnyStream stream;
    Sharers sharers;
  };

  void charge_selection(Range block);
  template <class Select>
  AnyStream take(Range block, Select select);
  void begin_entry(Range block);
  AnyStream add(const AnyStream& received);
  void settle_entries(const AnyStream* result);
  void return_dropped(const AnyStream* result);
  void roll_back();

  Operation& operation_;
  Accumulator accumulator_;
  ResidualMode mode_;
  PoolVector<Entry> entries_;
  PoolVector<Dropped> dropped_;
  AnyStream left_;
  double select_seconds_ = 0;
};

/// What a value coding lost: before − after. REQUIRES: equal shapes and indices.
AnyStream difference(const AnyStream& before, const AnyStream& after);

}  // namespace tulle
