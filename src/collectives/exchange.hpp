// What algorithms have in common: parts sent as frames, received, reduced and billed.
#pragma once

#include <span>

#include "tulle/codec/frame.hpp"
#include "tulle/collectives/algorithm.hpp"
#include "tulle/comm/operation.hpp"
#include "tulle/stream/reduce.hpp"

namespace tulle {

/// Dense vectors of this many values and more are refused: they belong in sparse algorithms. It depends on N alone, so
/// all ranks refuse together.
inline constexpr std::uint64_t kDenseDimensionLimit = std::uint64_t{1} << 32;

/// A stream on its way to the result, and how many non-zeros were reduced into it.
struct Part {
  AnyStream stream;
  std::uint64_t contributed = 0;
};

/// One operation's view of frames. Errors in what arrives name the peer.
class Exchange {
 public:
  Exchange(Operation& operation, const AnyStream& input, const CallOptions& options)
      : operation_(operation),
        op_(options.op),
        expectation_{input.type(), options.op.code(), operation.sequence(), input.dimension()} {}

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
  /// Appends the part's frame to `segments`; returns its data bytes.
  std::uint64_t encode(const Part& part, Segments& segments) const;
  /// Decodes the frame at the front of `segments` and moves past it.
  Part decode(int from, std::span<const Buffer>& segments);

  Part reduce(Part lower, Part higher);
  Part reduce_many(std::span<const Part> parts, LayoutChoice choice = LayoutChoice::automatic, Buffer landing = {});
  Part concatenate(std::span<const Part> blocks, LayoutChoice choice = LayoutChoice::automatic, Buffer landing = {});

  /// Memory for a dense result of the whole dimension. Dense blocks that arrive in `first_final_step` or later are put
  /// in their place there; what arrives before is not final and must not be.
  Buffer make_dense_result(Step first_final_step, bool phantom);
  Buffer block_of_result(const Buffer& result, Range range) const;

  Outcome outcome(Part result) const;

 private:
  Operation& operation_;
  Op op_;
  FrameExpectation expectation_;
  Buffer dense_result_;
  Step first_final_step_ = 0;
};

/// Sends every rank its block of `mine` and reduces what arrives for this rank's own, in rank order.
/// P−1 messages each way, one after the other nowhere. A dense block is made inside `result` where that is given.
Task<Part> split_and_reduce(Exchange& exchange, Part mine, Step step, LayoutChoice choice = LayoutChoice::automatic,
                            Buffer result = {});

/// Gives every rank everyone's part, by rank. Bruck: ⌈log2 P⌉ rounds; frames are forwarded as they are and decoded
/// once. `first_step` and the ⌈log2 P⌉ − 1 steps after it are used.
Task<PoolVector<Part>> gather_parts(Exchange& exchange, Part mine, Step first_step);

/// The ranks that take part in gather_parts() where not all do.
struct Members {
  int rank;
  int size;
  int (*rank_of)(const void* context, int member);
  const void* context;
};
Task<PoolVector<Part>> gather_parts_among(Exchange& exchange, Part mine, Step first_step, Members members);

}  // namespace tulle
