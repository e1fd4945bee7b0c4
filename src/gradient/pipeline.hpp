// One parameter on its way through the stages of a recipe, and what it keeps between steps.
//
// How it works. The gradient is added to the *accumulator*, with momentum correction to a *velocity* first. A *route*
// says how the accumulator then travels: all of it, what a selector takes out, coded for an allgather, as two thin
// matrices, or by a row that selects while it communicates. What stays in the accumulator is the residual. Everything
// that must be equal on all ranks (route, density, signs) follows from the recipe and the number of the step, so that
// ranks agree without a message. start() is in pipeline.cpp, finish() in delivery.cpp.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "gradient/accumulate.hpp"
#include "gradient/adaptive_plan.hpp"
#include "gradient/fused_group.hpp"
#include "gradient/journal.hpp"
#include "gradient/kept_memory.hpp"
#include "gradient/low_rank_exchange.hpp"
#include "gradient/policy.hpp"
#include "gradient/saved_state.hpp"
#include "tulle/collectives/collectives.hpp"
#include "tulle/collectives/gather_contributions.hpp"
#include "tulle/gradient/synchronizer.hpp"

namespace tulle::gradient {

/// What all parameters of a synchronizer have in common.
struct Common {
  Recipe recipe;
  SynchronizerOptions options;
  int rank = 0;
  int ranks = 1;
  int teams = 1;             ///< the recipe's, or as many as the ranks that are left can make
  std::uint64_t values = 0;  ///< of all parameters: what a step goes through
};

/// How a parameter travels in a step.
enum class Route {
  nowhere,
  dense,        ///< all of the accumulator, summed
  selected,     ///< what a selector takes out, summed
  accumulator,  ///< by a row that selects
  low_rank,     ///< as two thin matrices, summed
  gathered,     ///< what a selector takes out, or all, coded, to everyone
};

/// A threshold that a selector found, to be used again.
struct ThresholdState {
  double threshold = 0;   ///< 0: none
  std::uint64_t age = 0;  ///< steps that used it
};

/// What algorithms learned about a parameter, where it travels by the recipe and where it travels whole.
struct LearnedStates {
  AlgorithmState sparse, dense;
  LearnedStates* next_parked = nullptr;  ///< of those that outlive their pipelines
};

/// What ranks decided for a layer in the steps to come.
struct PipelineDecision {
  bool is_whole = false;  ///< it travels whole although the recipe would select or code it
  double density = 0;     ///< where the recipe follows `energy`
  LayerSeconds seconds;   ///< why: what it should take either way
};

/// For how long a gradient stays where and as it is.
enum class Lending { until_start_returns, until_finished };

/// What a step starts with.
struct Given {
  std::span<const float> gradient;
  std::span<const float> weights;  ///< empty where the recipe decays none
  Lending lending = Lending::until_start_returns;
};

/// What an exchange gave: the update is `sum` divided by `divisor`, before the outer step.
struct Delivery {
  AnyStream sum;
  float divisor = 1;
  bool is_skipped = false;
};

/// Borrows.
inline AnyStream whole(std::span<const float> values) {
  return AnyStream::dense(ValueType::f32, values.size(), {0, values.size()}, Buffer::borrow(std::as_bytes(values)));
}

/// Arrays of a parameter's size that are kept between steps.
std::uint64_t kept_arrays_of(const Recipe& recipe);

class Pipeline {
 public:
  /// REQUIRES: `memory` outlives it, and has room for kept_arrays_of(recipe) arrays of the parameter's size.
  Pipeline(const Common& common, Parameter parameter, const Communicator& channel, KeptMemory& memory);

  /// An exchange of memory that is not the accumulator's goes on without its request, and its state must stay.
  ~Pipeline();
  Pipeline(const Pipeline&) = delete;
  Pipeline& operator=(const Pipeline&) = delete;

  const Parameter& parameter() const { return parameter_; }
  bool is_in_flight() const { return is_in_flight_; }
  bool is_fused() const { return group_ != nullptr; }
  /// Whether it travels whole in every step.
  bool is_always_dense() const;
  /// What its values travel as in steps in which it travels whole.
  ValueCodec dense_codec() const;
  /// Whether there are steps in which it can travel with others.
  bool can_join() const;
  /// From now on it travels with others, in steps in which it can. REQUIRES: can_join(); nothing was started yet.
  void join(FusedGroup& group);
  /// Of the group; 0: there is none.
  std::uint64_t group_size() const { return group_ == nullptr ? 0 : group_->size(); }
  /// Whether what selectors take of it can travel with others' selections.
  bool can_join_selections() const;

  /// From the next step on. REQUIRES: equal on all ranks; not in flight; is_always_dense() does not hold.
  void decide(const PipelineDecision& decision) { decision_ = decision; }
  /// How often it was started or skipped.
  std::uint64_t started_steps() const { return step_; }
  /// The density that the last gradient of this rank wants, where the recipe follows `energy`; 0: it had none.
  double energy_density() const { return energy_density_; }

  void start(const Given& given);
  /// Throws bad_input where the options have no phantoms.
  void start_phantom();
  void skip();
  bool test();
  Task<Update> finish();
  /// Writes the update to all of `out`; false where the step was skipped.
  Task<bool> finish_into(std::span<float> out);

  /// How it travels once warm-up is over, and why.
  PlanRow plan() const;
  /// What it keeps. The arrays are its own. REQUIRES: not in flight.
  SavedParameter saved() const;
  /// Throws bad_input where `saved` is of another parameter or has not the arrays that the recipe needs.
  void require_fits(const SavedParameter& saved) const;
  /// REQUIRES: it fits; not in flight. Throws bad_input where what algorithms learned is not understood.
  void restore(const SavedParameter& saved);

  /// Ends what is in flight and drops what it gives. REQUIRES: its communicator is broken.
  Task<> abandon();
  /// What it keeps becomes what it was before the step of that number. REQUIRES: not in flight; where that step was
  /// begun, it is one of the last two and the options say `undo`.
  void roll_back(std::uint64_t step);
  /// From now on it travels there. REQUIRES: not in flight.
  void move_to(const Communicator& channel);
  /// What is pending on this rank is multiplied by `factor`.
  void scale_pending(float factor);
  /// What algorithms learned starts anew, and so do checksums of updates.
  void begin_anew();
  /// Whether roll_back() to the step of that number undoes all that came after.
  bool can_undo(std::uint64_t step) const;
  /// Nothing can be undone any more.
  void forget_steps() {
    if (journal_) journal_->forget();
  }

  std::span<const float> residual() const;
  std::span<const float> velocity() const { return velocity_; }
  std::span<const float> outer_momentum() const { return outer_; }
  const ParameterStats& stats() const { return stats_; }
  /// Of the updates of the first `steps` steps. REQUIRES: `steps` or one more have been delivered.
  std::uint32_t checksum_after(std::uint64_t steps) const { return checksums_[steps % 2]; }

 private:
  /// What it kept before a step.
  struct Before {
    PoolVector<float> accumulator, velocity, outer, right_factor;
    bool is_empty = true;
    ThresholdState threshold;
    LearnedStates learned;
    std::uint64_t delivered_steps = 0;
    std::uint32_t checksums[2] = {};
  };

  void save_before_step();
  void take_back(const Before& before);

  Route route_now() const;
  Route settled_route() const;
  bool is_small() const;
  bool travels_together(Route route) const;
  bool is_searched() const;
  std::string_view selector_now() const;
  std::uint64_t reuse_now() const;
  bool is_quantized() const;
  bool flags_void_steps() const;
  bool copies_gradient() const;
  std::span<float> place_of_copy();
  bool sends_lent(const Given& given) const;
  float sent_share() const;
  double density_now() const;
  double settled_density() const;
  double kept_share() const;
  SelectOptions select_options() const;
  CallOptions call_options() const;
  CallOptions dense_options() const;
  CallOptions gather_options() const;
  Norms norms() const;
  Accumulation accumulation(double norm) const;
  AnyStream whole_accumulator() const;
  AnyStream phantom_contribution() const;

  double clock_seconds() const { return channel_.engine()->transport().now(); }
  void require_idle() const;
  void require_phantoms(bool wanted) const;
  void require_size(std::size_t values) const;
  void begin_step();
  void run_stages(const Given& given, double norm);
  [[noreturn]] void refuse_together(const std::string& why);
  void add_up(const Accumulation& how, std::span<const float> gradient, std::span<const float> weights);
  AnyStream share_of(const AnyStream& selection);
  AnyStream select(const Accumulation& how, std::span<const float> gradient, std::span<const float> weights);
  AnyStream select_from_accumulator();
  template <class Work>
  AnyStream told_to_all(Work work);
  std::optional<AnyStream> select_by_old_threshold();
  void send_nothing();
  void send(AnyStream contribution);
  void send_accumulator(Accumulator values);
  void send_factors(std::span<const float> matrix);
  void send_void_flag();
  void note_sent();

  Task<> await_exchange();
  Task<Delivery> end_exchange();
  Delivery deliver();
  Delivery void_delivery();
  bool is_own(const Delivery& delivery) const;
  [[noreturn]] void refuse_update(const AnyStream& update);
  std::uint64_t delivered_values(const AnyStream& sum) const;
  AnyStream aggregated();
  void note_checksum(const AnyStream& sum);
  float divisor() const;
  void settle();
  void settle_accumulator();
  void mask(const AnyStream& left);
  void keep_what_coding_lost();
  void empty_accumulator();
  void give_back();

  std::vector<std::pair<const char*, std::span<float>>> kept_arrays();

  const Common& common_;
  Parameter parameter_;
  Communicator channel_;
  FusedGroup* group_ = nullptr;  ///< that it travels with, in steps in which it can
  std::size_t member_ = 0;

  // Kept between steps.
  std::uint64_t step_ = 0;  ///< exchanges that were started
  std::span<float> accumulator_, velocity_, outer_;
  bool is_empty_ = true;  ///< the accumulator counts as zeros, whatever it holds
  std::optional<LowRankExchange> low_rank_;
  ThresholdState threshold_;
  PipelineDecision decision_;
  std::unique_ptr<LearnedStates> learned_ = std::make_unique<LearnedStates>();

  std::uint64_t delivered_steps_ = 0;
  std::uint32_t checksums_[2] = {};  ///< of all updates after an even and after an odd number of steps

  std::unique_ptr<Journal<Before>> journal_;  ///< null unless the options say `undo`

  // Of the step in flight.
  bool is_in_flight_ = false;
  Route route_ = Route::dense;
  bool is_together_ = false;  ///< it travels with its group
  bool contributes_ = false;  ///< false where this rank skips
  bool is_finite_ = true;     ///< the gradient of this rank
  bool is_void_ = false;      ///< somebody's gradient was not finite
  AnyStream taken_;           ///< what a selector took out
  PoolVector<float> guest_;   ///< stands in for the accumulator of a rank that skips
  PoolVector<float> before_;  ///< the accumulator before the exchange, where a void step shall leave it so
  double energy_density_ = 0;
  ParameterStats stats_;
  Outcome outcome_;              ///< of the exchange, until it is delivered
  Contributions contributions_;  ///< the same where contributions are gathered
  Request<Outcome> request_;     ///< requests go first: they use the accumulator
  Request<Contributions> gathering_;
  Request<std::vector<double>> void_flag_;  ///< whose maximum tells ranks that the step is void
};

}  // namespace tulle::gradient
