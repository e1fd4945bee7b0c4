// What it takes a machine to code a change of a parameter, and to decode one.
#pragma once

#include "tulle/comm/profile.hpp"
#include "tulle/gradient/synchronizer.hpp"

namespace tulle::measure {

/// Kernels of a selection: statistics, a filter, a prefix sum, a compaction.
inline constexpr double kSelectionLaunches = 4;

/// A machine that codes as a recipe says.
class CodingCost {
 public:
  /// `machine` and `recipe` outlive it. `launch_seconds`: of starting a kernel.
  CodingCost(const Profile& machine, const gradient::Recipe& recipe, double launch_seconds = 0)
      : machine_(machine), recipe_(recipe), launch_seconds_(launch_seconds) {}

  /// Seconds of selecting and coding what is sent of the parameter, without what its error buffer takes.
  double encode_seconds(const gradient::Parameter& parameter) const;
  double decode_seconds(const gradient::Parameter& parameter) const;
  /// Of a pass over what is sent: a value is touched, or found by its index.
  double visit_seconds(const gradient::Parameter& parameter) const;

 private:
  bool selects(const gradient::Parameter& parameter) const;
  double values(const gradient::Parameter& parameter) const;
  double index_seconds(const gradient::Parameter& parameter) const;

  const Profile& machine_;
  const gradient::Recipe& recipe_;
  double launch_seconds_;
};

}  // namespace tulle::measure
