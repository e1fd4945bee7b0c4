// A parameter on its server: what workers have pushed in the open step, the model, and the last updates.
//
// How it works. A push waits in its worker's line. It is taken up into the open step where the model that it was
// computed on is at most `staleness` versions old, and dropped where it is older; a worker has one push in a step, and
// the next one stays in line. advance() ends the step: the mean of the contributions by weight, summed in the order of
// ranks whatever the order of arrival, steps the optimizer; the change is coded once and subtracted from the model as
// decoded, so that the model has the bits that workers will have.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "gradient/saved_state.hpp"
#include "server/compression.hpp"
#include "server/letters.hpp"
#include "tulle/stream/reduction.hpp"

namespace tulle::server {

/// A change that a worker pushed.
struct Push {
  std::uint64_t base = 0;    ///< version of the model that it was computed on
  std::uint64_t number = 0;  ///< of the worker's pushes of this parameter
  AnyStream change;
  double weight = 1;
};

/// What a step changed, as it goes to every worker.
struct StepUpdate {
  std::uint64_t version = 0;
  std::vector<AcceptedPush> accepted;
  Body body;
};

class HeldTensor {
 public:
  HeldTensor(const Parameter& parameter, const CompressionContext& pull, const Sgd& sgd, std::uint64_t staleness);

  const Parameter& parameter() const { return parameter_; }
  std::uint64_t version() const { return version_; }
  std::span<float> weights() { return weights_; }
  std::span<const float> velocity() const { return velocity_; }
  const CompressionContext& pull() const { return pull_; }

  /// Puts the push in its worker's line and takes up what can be. Gives how many of the worker's were dropped.
  std::uint64_t offer(int worker, Push push);

  /// Withdraws what the worker has in line and in the open step: it was restarted, and knows nothing of it.
  void forget(int worker);

  std::size_t contributions() const { return step_.size(); }
  bool has_contributed(int worker) const { return step_.contains(worker); }

  /// What a step did.
  struct Advance {
    std::vector<int> workers;  ///< who had a push in it or still has one in line
    std::uint64_t accepted = 0;
    std::uint64_t dropped = 0;  ///< of pushes in line that are now too old
    KernelReport work;
  };
  /// Ends the open step. REQUIRES: contributions() > 0. Throws bad_input where the step is not finite.
  Advance advance();

  /// The updates that lead from `version` to the newest, oldest first; none where the model itself is smaller, or where
  /// they are no longer here.
  std::vector<const StepUpdate*> updates_since(std::uint64_t version) const;
  /// The model as bytes that nobody writes any more: one copy a version.
  const Body& model();
  /// Of the step that ended last.
  std::vector<AcceptedPush> last_accepted() const;

  /// Copies go to `storage`, which must outlive what this gives.
  gradient::SavedParameter saved(std::vector<std::vector<float>>& storage) const;
  /// Throws bad_input where it is of another parameter or has other arrays.
  void require_fits(const gradient::SavedParameter& saved) const;
  /// REQUIRES: it fits; nothing was pushed yet.
  void restore(const gradient::SavedParameter& saved);

 private:
  std::uint64_t take_up(int worker);
  void write_mean(KernelReport& work);
  bool has_equal_weights() const;
  void publish(std::span<const float> change);
  void forget_old_updates();

  Parameter parameter_;
  CompressionContext pull_;
  Sgd sgd_;
  std::uint64_t staleness_;

  std::uint64_t version_ = 0;
  PoolVector<float> weights_, velocity_, change_;
  std::map<int, std::deque<Push>> line_;  ///< by worker
  std::map<int, Push> step_;              ///< contributions to the open step, in the order of ranks
  std::deque<StepUpdate> updates_;        ///< the last ones
  std::optional<Body> model_;             ///< of version_, once somebody asked
};

}  // namespace tulle::server
