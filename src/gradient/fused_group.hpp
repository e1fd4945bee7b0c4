// Small parameters that travel whole, packed into one message.
//
// How it works. Members and their places are fixed at registration. Each member writes its values to its place when it
// starts; when the last one has, the sum of all starts. Each then finds its own part of the sum. State stays with the
// parameters: a group keeps nothing between steps but what auto learned.
#pragma once

#include <cstdint>
#include <exception>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tulle/collectives/collectives.hpp"

namespace tulle::gradient {

class FusedGroup {
 public:
  /// `all_values` are those of all parameters, in groups or not.
  FusedGroup(const Communicator& channel, std::uint64_t all_values) : channel_(channel), all_values_(all_values) {}

  /// Registers a member and gives its number. REQUIRES: nothing was contributed yet.
  std::size_t add(std::string name, std::uint64_t size);
  std::uint64_t size() const { return values_.size(); }
  /// Of the member that was registered first. REQUIRES: there is one.
  const std::string& name() const { return members_.front().name; }

  /// Where the member's values go. It may write them there itself, and contribute that.
  std::span<float> place_of(std::size_t member) {
    return std::span(values_).subspan(members_[member].offset, members_[member].size);
  }
  /// The member's values are here; the last one starts the sum. `contribution` is sparse or dense, of the member's
  /// size.
  void contribute(std::size_t member, const AnyStream& contribution, const CallOptions& options);
  bool test();
  /// Throws bad_input naming a member that was not started, where `member` would wait for it for ever.
  void require_started(std::size_t member) const;
  /// The member's part of the sum, good until the member contributes again. Throws the exchange's error, to each
  /// member. REQUIRES: the sum has started.
  Task<AnyStream> sum_of(std::size_t member);
  /// Ends what is in flight and drops what it gives. REQUIRES: its communicator is broken.
  Task<> abandon();
  /// From now on the sum is made there, and what auto learned starts anew. REQUIRES: nothing is in flight.
  void move_to(const Communicator& channel);
  /// The member's share of what the sum took, by size. REQUIRES: sum_of() has ended.
  Counts counts_of(std::size_t member) const;

 private:
  struct Member {
    std::string name;
    std::uint64_t offset = 0, size = 0;
    bool is_here = false;
  };

  Communicator channel_;
  std::uint64_t all_values_;
  std::vector<Member> members_;
  PoolVector<float> values_;
  std::size_t here_ = 0;
  AlgorithmState algorithm_;
  Outcome result_;
  std::exception_ptr error_;
  Request<Outcome> request_;  ///< goes first: it uses the values
};

}  // namespace tulle::gradient
