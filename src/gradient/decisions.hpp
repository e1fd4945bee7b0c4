// What ranks decide together from step to step: which layers travel whole (`adaptive`), and how dense the others are
// (`energy`).
//
// How it works. Each rank counts its starts and finishes of a step and the time that it spends inside of them. When the
// last parameter of a step has started, ranks add up how dense each layer would have to be to keep its share of energy;
// when the last one has finished and a trial of the adaptive plan is over, they add up what its steps cost. Either sum
// is there before that last finish() returns, so that every rank decides alike, from the next step on. Sums travel on a
// channel of their own. Recipes that decide nothing pay nothing.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gradient/adaptive_plan.hpp"
#include "gradient/journal.hpp"
#include "gradient/pipeline.hpp"

namespace tulle::gradient {

using Pipelines = std::span<const std::unique_ptr<Pipeline>>;

class Decisions {
 public:
  /// What it is given must outlive it.
  Decisions(const Common& common, const Communicator& channel, Pipelines pipelines);

  /// Whether there is anything to decide.
  bool are_needed() const { return is_adaptive_ || follows_energy_; }

  /// Around each start or skip. Throws bad_input where a step begins before the last one has ended: its decisions would
  /// not be known.
  void before_start(const Pipeline& pipeline);
  void after_start();
  /// Around each finish: gives what after_finish() wants.
  double before_finish() const { return are_needed() ? seconds() : 0; }
  /// Ends when what follows from the step is decided, where this was its last parameter.
  Task<> after_finish(double began_seconds);

  /// For report(): which layers travel whole, and why. Empty where nothing is decided.
  std::string text() const;

  /// As JSON; empty where nothing is decided.
  std::string saved() const;
  /// Of a state of as many ranks; empty text: starts anew. REQUIRES: the pipelines have been restored; check() passed.
  void restore(std::string_view text);
  /// Throws bad_input where the text would not be understood.
  void check(std::string_view text) const;

  /// Ends what is in flight and drops what it gives. REQUIRES: its communicator is broken.
  Task<> abandon();
  /// What was decided before the step of that number holds again, from that step on. REQUIRES: the pipelines have been
  /// rolled back; nothing is in flight.
  void roll_back(std::uint64_t step);
  /// From now on ranks agree there. Models of other ranks are other models, so that the adaptive plan starts anew.
  void move_to(const Communicator& channel);
  /// All starts anew, as on a rank that has just come.
  void begin_anew() { restore({}); }

 private:
  /// What was decided before a step.
  struct Before {
    std::optional<AdaptivePlan> plan;
    std::vector<double> densities;
  };

  void begin_plan();
  double seconds() const { return channel_.engine()->transport().now(); }
  bool warms_up() const;
  void begin_sum_of_densities();
  void decide_densities(std::span<const double> sums);
  Task<> decide_ways();
  void tell_pipelines();
  double exchange_seconds(std::span<const double> densities) const;
  std::vector<double> computing_seconds() const;

  const Common& common_;
  Communicator channel_;
  Pipelines pipelines_;
  bool is_adaptive_, follows_energy_;
  std::vector<Pipeline*> layers_;  ///< that do not travel whole anyway
  std::optional<AdaptivePlan> plan_;
  std::vector<double> densities_;  ///< agreed, by layer

  Journal<Before> journal_;  ///< not used unless the options say `undo`

  std::uint64_t ended_steps_ = 0;
  std::size_t started_ = 0, finished_ = 0;  ///< in this step
  double inside_seconds_ = 0;               ///< of this step, in starts and finishes
  double entered_seconds_ = 0;              ///< when the present start began
  double first_start_seconds_ = 0;          ///< when the first one of this step ended
  double inside_at_first_start_ = 0;
  double back_propagation_seconds_ = 0;  ///< between the first start and the last, outside of both
  Request<std::vector<double>> densities_sum_;
};

}  // namespace tulle::gradient
