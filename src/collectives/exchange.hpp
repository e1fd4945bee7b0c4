// What algorithms have in common: parts sent as frames, received, reduced and billed.
#pragma once

#include <algorithm>
#include <span>

#include "codec/recode.hpp"
#include "collectives/index_choice.hpp"
#include "tulle/codec/frame.hpp"
#include "tulle/collectives/registry.hpp"
#include "tulle/comm/operation.hpp"
#include "tulle/stream/reduction.hpp"

namespace tulle {

/// Dense vectors of this many values and more are refused: they belong in sparse algorithms. It depends on N alone, so
/// all ranks refuse together.
inline constexpr std::uint64_t kDenseDimensionLimit = std::uint64_t{1} << 32;

/// A stream on its way to the result, and how many non-zeros were reduced into it.
struct Part {
  AnyStream stream;
  std::uint64_t contributed = 0;
  Segments frame = {};  ///< where it is encoded already
};

/// The ranks that lose the same values, and which of them this one is: each keeps its share.
struct Sharers {
  int index = 0;
  int count = 1;
};

/// The ranks that code the same values: they round alike, as `rank` would alone, and share what is lost.
struct Coders {
  int rank;
  Sharers sharers;
};

class Ledger;

/// One operation's view of frames. Errors in what arrives name the peer.
class Exchange {
 public:
  Exchange(Operation& operation, const AnyStream& input, const CallOptions& options)
      : Exchange(operation, input.type(), input.dimension(), options) {}
  /// For rows that take an accumulator: what they deliver is coded, and what that loses is dropped in `ledger`. Codings
  /// that round finely code what is on its way there too. Of others a second coding could lose more than the first had
  /// left to keep, so that accumulators would grow for ever.
  Exchange(Operation& operation, const Accumulator& accumulator, const CallOptions& options, Ledger& ledger);

  Operation& operation() { return operation_; }
  int rank() const { return operation_.rank(); }
  int size() const { return operation_.size(); }
  const Op& op() const { return op_; }
  ValueType type() const { return expectation_.type; }
  std::uint64_t dimension() const { return expectation_.dimension; }

  /// The caller's contribution, and the same made dense.
  static Part contribution(const AnyStream& input);
  Part dense_contribution(const AnyStream& input);

  void send(int to, Step step, const Part& part);
  /// The one part that a message holds.
  Part open(Incoming message);
  /// The parts that a message holds, one for each of `ranges`.
  PoolVector<Part> open(Incoming message, std::span<const Range> ranges);
  /// The part as it arrives elsewhere: with a value coding its values are the decoded ones, so that the sender goes on
  /// with what everyone else gets. Encoded once; send() and gather_parts() use that. `step` tells roundings apart.
  /// Dense values are decoded to `landing` where that is not empty; it may be where the part's own are.
  Part with_coded_values(Part part, Step step, Buffer landing = {}) {
    return with_coded_values(std::move(part), step, {rank(), {}}, std::move(landing));
  }
  Part with_coded_values(Part part, Step step, Coders coders, Buffer landing = {});
  /// The same for a contribution on its way to its owner, and for an owner's sum, where the call asks for that.
  Part with_coded_contribution(Part part, Step step, Buffer landing = {}) {
    return with_coded_contribution(std::move(part), step, {rank(), {}}, std::move(landing));
  }
  Part with_coded_contribution(Part part, Step step, Coders coders, Buffer landing = {}) {
    const bool is_coded = coded_values_ != CodedValues::sums;
    return is_coded ? with_coded_values(std::move(part), step, coders, std::move(landing)) : part;
  }
  Part with_coded_sum(Part part, Step step, Buffer landing = {}) {
    const bool is_coded = coded_values_ != CodedValues::contributions;
    return is_coded ? with_coded_values(std::move(part), step, std::move(landing)) : part;
  }
  /// From now on codings take the scales that are right for a sender which keeps what they lose.
  void keep_what_coding_loses() { scales_ = Scales::nearest; }
  /// Appends the part's frame to `segments`; returns its data bytes.
  std::uint64_t encode(const Part& part, Segments& segments) const;
  void charge_coding(IndexCoding indices, std::uint64_t nnz) const;
  /// The head of the frame at the front of `segments`.
  FrameHead head_of(int from, std::span<const Buffer> segments) const;
  /// Decodes the frame at the front of `segments` and moves past it.
  Part decode(int from, std::span<const Buffer>& segments, const PairLanding& landing = {});

  Part reduce(Part lower, Part higher);
  /// Without a rule, layouts follow the sizes on the wire.
  Part reduce_many(std::span<const Part> parts, std::optional<LayoutRule> rule = {}, Buffer landing = {});
  Part concatenate(std::span<const Part> blocks, std::optional<LayoutRule> rule = {}, JoinLanding landing = {});

  /// Memory for a dense result of the whole dimension. Dense blocks that arrive in `first_final_step` or later are put
  /// in their place there; what arrives before is not final and must not be.
  Buffer make_dense_result(Step first_final_step, bool phantom);
  Buffer block_of_result(const Buffer& result, Range range) const;
  /// Where sums become dense unless a row says otherwise; of sums whose values are coded before they travel.
  const LayoutRule& layout_rule() const { return layout_rule_; }
  const LayoutRule& coded_layout_rule() const { return coded_layout_rule_; }

  Outcome outcome(Part result) const;
  /// The same of a row that takes an accumulator.
  Outcome outcome(Part result, const Ledger& ledger) const;

 private:
  Exchange(Operation& operation, ValueType type, std::uint64_t dimension, const CallOptions& options);
  FrameLabel label_of(const Part& part) const { return {expectation_.op, expectation_.sequence, part.contributed}; }

  Operation& operation_;
  Op op_;
  FrameExpectation expectation_;
  IndexChoice index_choice_;
  ValueCodec value_codec_;
  CodedValues coded_values_;
  Scales scales_ = Scales::published;
  RoundingKey rounding_;
  LayoutRule layout_rule_;
  LayoutRule coded_layout_rule_;
  Ledger* ledger_ = nullptr;
  Buffer dense_result_;
  Step first_final_step_ = 0;
  std::optional<Operation::Landing> landing_;
};

/// Of a frame's arrays, which follow its head.
std::uint64_t bytes_of_body(std::span<const Buffer> frame);
/// Throws bad_message, naming the peer.
[[noreturn]] void reject_message(int from, const std::string& why);
/// The same where `rest` is not empty.
void require_all_read(std::span<const Buffer> rest, int from);

}  // namespace tulle
