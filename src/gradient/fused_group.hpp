// Small parameters that travel together, packed into one message.
//
// How it works. Members and their places are fixed at registration. In every step each member hands over *all* of its
// values, which are written to its place, or a *selection* of them, or says that it travels by itself this time. When
// the last one has, up to two sums start: one of a dense vector in which those that sent all lie one after the other,
// and one of a sparse stream made of the selections in the same way. Each member then finds its own part of its sum.
// How a member travels follows from what ranks have agreed on, so that all of them start the same sums. State stays
// with the parameters: a group keeps nothing between steps but what auto learned.
#pragma once

#include <cstdint>
#include <exception>
#include <span>
#include <string>
#include <vector>

#include "tulle/collectives/collectives.hpp"

namespace tulle::gradient {

class FusedGroup {
 public:
  /// Of a group: positions of selections are 32 bits wide.
  static constexpr std::uint64_t kMostValues = std::uint64_t{1} << 31;

  /// `all_values` are those of all parameters, in groups or not.
  FusedGroup(const Communicator& channel, std::uint64_t all_values) : channel_(channel), all_values_(all_values) {}

  /// Registers a member and gives its number. REQUIRES: nothing was contributed yet.
  std::size_t add(std::string name, std::uint64_t size);
  std::uint64_t size() const { return size_; }
  /// Of the member that was registered first. REQUIRES: there is one.
  const std::string& name() const { return members_.front().name; }

  /// Where all of the member's values go. It may write them there itself, and contribute that.
  std::span<float> place_of(std::size_t member);
  /// All of the member's values are here; the last member starts the sums. `values` is sparse or dense, of the member's
  /// size. `options` are the same for all members that send all.
  void contribute_all(std::size_t member, const AnyStream& values, const CallOptions& options);
  /// What a selector took is here. `options` are the same for all members that do so, but for the density.
  void contribute_selection(std::size_t member, AnyStream selection, const CallOptions& options);
  /// The member travels by itself in this step.
  void stay_away(std::size_t member);
  /// Makes some progress. True when sum_of() would not wait.
  bool test(std::size_t member);
  /// Throws bad_input naming a member that was not started, where `member` would wait for it for ever.
  void require_started(std::size_t member) const;
  /// The member's part of its sum, good until the member contributes again. Throws the exchange's error, to each
  /// member. REQUIRES: the sum has started.
  Task<AnyStream> sum_of(std::size_t member);
  /// Ends what is in flight and drops what it gives. REQUIRES: its communicator is broken.
  Task<> abandon();
  /// From now on sums are made there, and what auto learned starts anew. REQUIRES: nothing is in flight.
  void move_to(const Communicator& channel);
  /// The member's share of what its sum took, by size. REQUIRES: sum_of() has ended.
  Counts counts_of(std::size_t member) const;

 private:
  enum class Sends : std::uint8_t { nothing, all, selection };
  struct Member {
    std::string name;
    std::uint64_t place = 0, size = 0;
    bool is_here = false;
    Sends sends = Sends::nothing;
    std::uint64_t begin = 0;  ///< of its part of the sum
    AnyStream selection;
    double density = 0;  ///< that is expected of it
  };
  struct Sum {
    std::uint64_t size = 0, members = 0;
    CallOptions options;  ///< of any member
    AlgorithmState algorithm;
    Outcome result;
    std::exception_ptr error;
    Request<Outcome> request;  ///< goes first: it uses the values
  };

  Sum& sum_for(Sends sends) { return sends == Sends::all ? all_ : selected_; }
  const Sum& sum_for(Sends sends) const { return sends == Sends::all ? all_ : selected_; }
  void arrive(std::size_t member, Sends sends);
  void start_sums();
  void lay_out();
  void close_gaps();
  AnyStream all_values();
  AnyStream joined_selections();
  double expected_density() const;

  Communicator channel_;
  std::uint64_t all_values_;
  std::uint64_t size_ = 0;
  std::vector<Member> members_;
  PoolVector<float> values_;  ///< all members' places; empty until somebody sends all
  bool is_phantom_ = false;   ///< in this step
  std::size_t here_ = 0;
  Sum all_, selected_;
};

}  // namespace tulle::gradient
