// Which layers travel whole although the recipe would select or code them: where that is faster, by model and
// measurement.
//
// How it works. A *round* tries three *ways* for a few steps each: every layer by the recipe, every layer whole, and
// *mixed*, where each layer goes the way that should be faster for it. Then the way whose steps were the fastest is in
// *use*, long enough for the trials not to matter, and the next round begins.
//
// What a step costs is the time that a rank spends inside of its synchronizer: computing, and waiting that
// back-propagation does not hide. For a layer it is the measured time of computing plus the modelled time of its
// exchange, times how much longer steps of that way took than the model says. Ranks add up their numbers after the last
// step of each trial, so that all decide alike; the decision holds from the next step on.
//
// No I/O: the synchronizer carries the numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tulle::gradient {

/// The two ways of a layer.
struct LayerSeconds {
  double recipe = 0;
  double whole = 0;
};

class AdaptivePlan {
 public:
  enum class Way : std::uint8_t { recipe, whole, mixed };
  /// What a step of a way costs, mean over ranks; 0: not known.
  struct WaySeconds {
    double recipe = 0, whole = 0, mixed = 0;
  };

  /// Steps of a trial. The first fills caches and pools and does not count.
  static constexpr std::size_t kTrialSteps = 4, kCountedSteps = kTrialSteps - 1;

  /// `models` are the times of exchanges by cost functions, equal on all ranks. Frozen, the model alone decides, once.
  AdaptivePlan(std::vector<LayerSeconds> models, bool is_frozen);

  /// Whether the layer travels whole in the present step.
  bool is_whole(std::size_t layer) const;
  Way way() const { return way_; }
  bool is_in_use() const { return is_in_use_; }
  const WaySeconds& way_seconds() const { return way_seconds_; }
  /// What the layer should take each way, computing included; 0 where it is not known yet.
  LayerSeconds layer_seconds(std::size_t layer) const { return expected_[layer]; }

  /// Notes what the step that ended cost this rank: in all, and each layer in computing. True where ranks have to agree
  /// before the next one. REQUIRES: called in the same steps on all ranks; `computing` has one for each layer.
  bool note(double seconds, std::span<const double> computing);
  /// What this rank gives to the sum. REQUIRES: note() said so.
  std::vector<double> numbers() const;
  /// Decides from the sums over `ranks` ranks. REQUIRES: as many as numbers() gives.
  void decide(std::span<const double> sums, int ranks);

  /// As JSON; the models are not part of it.
  std::string saved() const;
  /// Throws bad_input where it is not understood or is of another number of layers; then nothing has changed.
  void restore(std::string_view text);

 private:
  void begin_trial(Way way);
  void take_up_fastest();
  void expect_layers();
  double scale_of(double LayerSeconds::*way, double seconds) const;
  std::size_t steps_of_use() const;

  std::vector<LayerSeconds> models_;
  std::vector<LayerSeconds> computing_;  ///< agreed
  std::vector<LayerSeconds> expected_;
  std::vector<bool> mixed_;  ///< whole where true
  bool is_frozen_;
  Way way_ = Way::recipe;
  bool is_in_use_ = false;
  std::size_t steps_left_ = kTrialSteps;  ///< of the trial or the use
  WaySeconds way_seconds_;

  // Of this rank in the present trial.
  std::vector<double> step_seconds_;
  std::vector<double> least_computing_;
};

std::string_view to_string(AdaptivePlan::Way way);

}  // namespace tulle::gradient
