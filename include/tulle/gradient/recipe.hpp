// Recipes: what happens to a gradient between back-propagation and the update of the weights.
//
// Every method passes a tensor through the same stages, and a recipe says what each of them does:
//
//   accumulate → select → code → exchange → aggregate → outer step
//
// docs/recipes.md lists the presets with what they send and what they give up; docs/gradient.md explains the stages.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "tulle/codec/value_coding.hpp"
#include "tulle/collectives/call.hpp"
#include "tulle/collectives/gather_contributions.hpp"
#include "tulle/select/selector.hpp"

#pragma GCC visibility push(default)
namespace tulle::gradient {

/// What the first steps of a training do, while the weights still move fast.
enum class WarmUp : std::uint8_t {
  none,
  dense,      ///< everything is sent for `warm_up_steps` steps
  densities,  ///< 25, 6.25, 1.5625 and 0.4 %, each for a quarter of `warm_up_steps`, then what the recipe says (DGC)
};
std::string_view to_string(WarmUp warm_up);

/// How values travel, and so what can become of them.
enum class Exchange : std::uint8_t {
  none,         ///< nothing is sent: each rank goes on with its own gradient
  sum,          ///< an allreduce of what each rank contributes
  accumulator,  ///< a row that selects while it communicates; what it does not deliver stays in the accumulators
  gather,       ///< everyone's coded contribution to everyone; the sender keeps what the coding lost
  low_rank,     ///< matrices as products of two thin ones, which are summed one after the other (PowerSGD)
};
std::string_view to_string(Exchange exchange);

/// What becomes of all ranks' contributions to an index.
enum class Aggregate : std::uint8_t {
  mean,  ///< their sum divided by the number of ranks
  sum,
  mean_of_senders,  ///< divided by the number of ranks that sent the index; exchange gather only
};
std::string_view to_string(Aggregate aggregate);

/// What is done with the aggregated update before it is handed out.
enum class OuterStep : std::uint8_t {
  none,      ///< it is handed out as it is
  sgd,       ///< times the rate
  momentum,  ///< m ← μ·m + update; rate · m
  nesterov,  ///< m ← μ·m + update; rate · (update + μ·m)
};
std::string_view to_string(OuterStep outer);

/// What a Synchronizer does. Equal on all ranks. A default recipe is `dense`.
struct Recipe {
  // Accumulate: v ← decay·v + u, u ← momentum·u + g, g ← clipped gradient + weight_decay·w.
  bool error_feedback = false;  ///< what was not delivered stays in the accumulator
  double decay = 1;             ///< of what stayed, per step
  double momentum = 0;          ///< momentum correction: velocities are accumulated instead of gradients (DGC)
  bool nesterov = false;        ///< adds the gradient once more
  bool masking = false;         ///< momentum is cleared where a value left the rank and was delivered
  double weight_decay = 0;      ///< start() then wants the weights
  double clip = 0;  ///< bound on the L2 norm of a parameter's mean gradient; ranks use P^-1/2 of it; 0: none
  WarmUp warm_up = WarmUp::none;
  std::uint64_t warm_up_steps = 0;

  // Select: which coordinates a rank contributes.
  std::string selector = "none";  ///< a selector's name; none: all
  double density = 0.01;          ///< share of the values; bucketed_top_k: see `keep`
  std::uint64_t keep = 0;         ///< bucketed_top_k: how many of every `bucket`
  std::uint64_t bucket = 512;
  BucketForm form = BucketForm::exact;
  bool alternate_signs = false;  ///< positive and negative values take turns, except in an output layer (RedSync)
  std::uint64_t reuse = 1;       ///< steps for which a threshold that was found is used; 1: found every step
  std::uint64_t search_from =
      0;  ///< from so many values on threshold_binary_search selects and `reuse` counts; 0: never
  std::uint64_t dense_below = 0;   ///< parameters with fewer values are sent whole
  bool small_roles_dense = false;  ///< so are those whose role is bias, norm or small
  /// Share of a gradient's squares that shall be sent: after each step ranks agree for each layer on the smallest
  /// density that does, above `density` only as far as exchanges hide behind back-propagation; 0: `density` is fixed.
  double energy = 0;
  bool adaptive = false;  ///< layers may be sent whole where that is faster, by model and measurement

  // Code: in how many bits.
  std::string indices = "auto";  ///< an index coding's name, smallest or auto
  ValueCodec values = {};
  bool stochastic_feedback = false;  ///< error feedback also of three_value_stochastic, whose noise then adds up
  CodedValues coded = CodedValues::sums;

  // Exchange and aggregate.
  Exchange exchange = Exchange::sum;
  std::string row = "auto";  ///< of the allreduce; accumulator: spardl, oktopk, gtopk, topka or topkdsa
  ResidualMode residual = ResidualMode::global;
  int teams = 1;
  std::uint64_t rank = 4;  ///< low_rank: columns of the thin matrices
  Aggregate aggregate = Aggregate::mean;
  Clipping clipping = Clipping::none;  ///< mean_of_senders: of contributions with large norms

  // Local steps and the outer step.
  std::uint64_t every = 1;  ///< local steps between two exchanges: what is exchanged is then Δ = θ_before − θ_now
  OuterStep outer = OuterStep::none;
  double outer_rate = 1;
  double outer_momentum = 0.9;

  friend bool operator==(const Recipe&, const Recipe&) = default;
};

/// A recipe from text: the name of a preset, with knobs, then further stages that change it. Every field of Recipe is
/// both a knob and a stage; `%` divides by 100.
///
///   redsync:density=0.1%            a preset and a knob
///   topk:1%   topk:16/512           its first knob needs no name; 16 of every 512
///   topk:1%|qsgd:4|no_ef            a value coding and other stages
///   dense|momentum:0.9|outer:sgd    from the ground up
///   adaptive:topk:1%                short for topk:1%|adaptive
///
/// Throws bad_input that names the part it does not understand and lists what there is, or why the stages do not go
/// together (see validate()).
Recipe parse_recipe(std::string_view text);

/// The shortest text that gives the same recipe: a preset and what differs from it.
std::string to_string(const Recipe& recipe);

/// An object with every field by its name, numbers as numbers.
std::string to_json(const Recipe& recipe);
/// Reads what to_json() gives; fields that are not there have their defaults, or with "preset" that preset's values.
/// Throws bad_input naming the field.
Recipe recipe_from_json(std::string_view text);

/// Throws bad_input with the reason where stages do not go together.
void validate(const Recipe& recipe);

/// Whether anything stays with the ranks between steps.
bool keeps_residual(const Recipe& recipe);

/// A recipe that has a name.
struct Preset {
  std::string_view name;
  std::string_view paper;
  std::string_view summary;
  std::string_view first_knob;  ///< what a value without a name sets
  std::string_view sends;       ///< for each value of a parameter, in bits
  std::string_view passes;      ///< reads and writes of arrays as large as the parameter that cannot be avoided
  std::string_view gives_up;    ///< what is lost for good; empty: nothing
  Recipe recipe;
};

/// All presets. They never change, so that any thread may read them.
std::span<const Preset> presets();
/// Throws bad_input that lists the names.
const Preset& find_preset(std::string_view name);

}  // namespace tulle::gradient
#pragma GCC visibility pop
