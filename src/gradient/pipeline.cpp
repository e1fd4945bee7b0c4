#include "gradient/pipeline.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <mutex>
#include <utility>

#include "base/timed.hpp"
#include "gradient/energy.hpp"
#include "gradient/exchange_model.hpp"
#include "select/share.hpp"
#include "tulle/base/crc32c.hpp"
#include "tulle/base/error.hpp"
#include "tulle/comm/control.hpp"

namespace tulle::gradient {
namespace {

std::string_view to_string(Route route) {
  switch (route) {
    case Route::nowhere: return "nowhere";
    case Route::dense: return "dense";
    case Route::selected: return "selected";
    case Route::accumulator: return "accumulator";
    case Route::low_rank: return "low_rank";
    case Route::gathered: return "gathered";
  }
  return "unknown";
}

// Each value by itself, infinity and NaN too.
bool carries_values(ValueCoding coding) {
  return coding == ValueCoding::raw || coding == ValueCoding::f32 || coding == ValueCoding::f16 ||
         coding == ValueCoding::bf16;
}

// A threshold that lets more than this many times k pass, or fewer than one in so many of k, has grown stale.
constexpr std::uint64_t kMostSurvivors = 4, kFewestSurvivors = 2;

CodingLoss coding_loss_of(const Recipe& recipe) {
  return recipe.error_feedback && !recipe.stochastic_feedback ? CodingLoss::kept : CodingLoss::dropped;
}

bool has_outer_momentum(const Recipe& recipe) {
  return recipe.outer == OuterStep::momentum || recipe.outer == OuterStep::nesterov;
}

bool is_dense_row(const std::string& row) {
  if (row == kAuto || row == kAutoDense) return true;
  const auto is_it = [&](const Algorithm& algorithm) {
    return algorithm.name == row && algorithm.kind == OperationKind::allreduce && algorithm.takes == Takes::stream &&
           algorithm.input == Layout::dense;
  };
  return std::ranges::any_of(registry(), is_it);
}

}  // namespace

std::uint64_t kept_arrays_of(const Recipe& recipe) { return 1u + (recipe.momentum != 0) + has_outer_momentum(recipe); }

Pipeline::Pipeline(const Common& common, Parameter parameter, const Communicator& channel, KeptMemory& memory)
    : common_(common), parameter_(std::move(parameter)), channel_(channel) {
  const Recipe& recipe = common_.recipe;
  const std::uint64_t stored = common_.options.phantoms ? 0 : parameter_.size;
  accumulator_ = memory.take(stored);
  if (recipe.momentum != 0) velocity_ = memory.take(stored);
  if (recipe.exchange == Exchange::low_rank && parameter_.rows > 0) {
    const MatrixShape shape{parameter_.rows, parameter_.size / parameter_.rows};
    const std::size_t rank = usable_rank(shape, recipe.rank);
    const std::uint32_t name_crc = crc32c(std::as_bytes(std::span(parameter_.name)));
    if (low_rank_pays(shape, rank)) low_rank_.emplace(channel_, shape, rank, common_.options.seed ^ name_crc);
  }
  if (has_outer_momentum(recipe)) outer_ = memory.take(stored);
  if (common_.options.undo) journal_ = std::make_unique<Journal<Before>>();
}

// Parked until the process ends, as buffers of sends that did not finish are. A chain needs no memory, which a
// destructor could not do without.
Pipeline::~Pipeline() {
  if (!request_.valid()) return;
  static std::mutex mutex;
  static LearnedStates* parked = nullptr;
  const std::lock_guard lock(mutex);
  learned_->next_parked = parked;
  parked = learned_.release();
}

bool Pipeline::is_small() const { return travels_whole(common_.recipe, parameter_); }

bool Pipeline::is_searched() const {
  return common_.recipe.search_from > 0 && parameter_.size >= common_.recipe.search_from;
}

std::string_view Pipeline::selector_now() const {
  return is_searched() ? std::string_view("threshold_binary_search") : std::string_view(common_.recipe.selector);
}

std::uint64_t Pipeline::reuse_now() const {
  return common_.recipe.search_from == 0 || is_searched() ? common_.recipe.reuse : 1;
}

bool Pipeline::is_always_dense() const {
  const Recipe& recipe = common_.recipe;
  if (recipe.exchange == Exchange::none) return false;
  if (recipe.exchange == Exchange::low_rank) return is_small() || !low_rank_;
  return is_small() || (recipe.exchange == Exchange::sum && recipe.selector == "none");
}

// Selections are joined where a value is coded by itself: codings of many values at once would see other neighbours.
bool Pipeline::can_join_selections() const {
  const Recipe& recipe = common_.recipe;
  return recipe.exchange == Exchange::sum && recipe.selector != "none" && carries_values(recipe.values.coding);
}

bool Pipeline::can_join() const {
  if (common_.recipe.exchange == Exchange::none) return false;
  if (is_always_dense()) return carries_values(dense_codec().coding);
  return common_.recipe.adaptive || can_join_selections();
}

// A recipe that sends everything codes as it says. Small parameters, steps of a warm-up, and layers that are sent whole
// because that is faster are exact.
ValueCodec Pipeline::dense_codec() const {
  const Recipe& recipe = common_.recipe;
  const bool is_coded = recipe.exchange == Exchange::sum && recipe.selector == "none" && !is_small();
  return is_coded ? recipe.values : ValueCodec{};
}

bool Pipeline::travels_together(Route route) const {
  if (group_ == nullptr) return false;
  return route == Route::dense || (route == Route::selected && can_join_selections());
}

void Pipeline::join(FusedGroup& group) {
  group_ = &group;
  member_ = group.add(parameter_.name, parameter_.size);
}

// Parameters that are small, steps of a dense warm-up, and layers that are sent whole because that is faster.
Route Pipeline::route_now() const {
  const bool warms_up = common_.recipe.warm_up == WarmUp::dense && step_ < common_.recipe.warm_up_steps;
  return warms_up && common_.recipe.exchange != Exchange::none ? Route::dense : settled_route();
}

// Once warm-up is over.
Route Pipeline::settled_route() const {
  const Recipe& recipe = common_.recipe;
  if (recipe.exchange == Exchange::none) return Route::nowhere;
  if (is_small() || decision_.is_whole) return Route::dense;
  switch (recipe.exchange) {
    case Exchange::none: break;
    case Exchange::sum: return recipe.selector == "none" ? Route::dense : Route::selected;
    case Exchange::accumulator: return Route::accumulator;
    case Exchange::low_rank: return low_rank_ ? Route::low_rank : Route::dense;
    case Exchange::gather: return Route::gathered;
  }
  return Route::dense;
}

// Once warm-up is over.
double Pipeline::settled_density() const {
  return common_.recipe.energy > 0 && decision_.density > 0 ? decision_.density : common_.recipe.density;
}

double Pipeline::density_now() const {
  constexpr double kDensities[] = {0.25, 0.0625, 0.015625, 0.004};
  const Recipe& recipe = common_.recipe;
  if (recipe.warm_up != WarmUp::densities || step_ >= recipe.warm_up_steps) return settled_density();
  return std::max(recipe.density, kDensities[step_ * std::size(kDensities) / recipe.warm_up_steps]);
}

// One mean for all values of an output layer costs accuracy: RedSync leaves it as it is.
bool Pipeline::is_quantized() const { return common_.recipe.alternate_signs && parameter_.role != Role::output; }

// A value that is not finite comes through to everyone by itself where exchanges are sums and values keep what they
// are. Elsewhere a flag travels beside each exchange.
bool Pipeline::flags_void_steps() const {
  if (common_.options.non_finite != NonFinitePolicy::skip) return false;
  return common_.recipe.exchange != Exchange::sum || !carries_values(common_.recipe.values.coding);
}

// The gradient is then all that travels, and nobody looks at what a step that failed left where it was copied to.
bool Pipeline::copies_gradient() const {
  const Recipe& recipe = common_.recipe;
  const bool is_stream = recipe.exchange != Exchange::accumulator && recipe.exchange != Exchange::low_rank;
  return is_stream && !recipe.error_feedback && recipe.momentum == 0 && recipe.weight_decay == 0 && recipe.clip == 0 &&
         recipe.selector == "none";
}

std::span<float> Pipeline::place_of_copy() { return is_together_ ? group_->place_of(member_) : accumulator_; }

// Without a copy. A group packs its members, and what goes nowhere is delivered from the accumulator.
bool Pipeline::sends_lent(const Given& given) const {
  return given.lending == Lending::until_finished && copies_gradient() && route_ == Route::dense && !is_together_ &&
         sent_share() == 1;
}

// Of its values, which a rank sends. Sums in 16 bits end at 65504: of shares that add up to 1 or less they are means,
// which end there no sooner than the values do. A power of two rounds nothing.
float Pipeline::sent_share() const {
  const bool is_summed = route_ == Route::dense || route_ == Route::selected;
  const ValueCoding coding = route_ == Route::dense ? dense_codec().coding : common_.recipe.values.coding;
  if (!is_summed || coding != ValueCoding::f16) return 1;
  return 1 / static_cast<float>(std::bit_ceil(static_cast<unsigned>(common_.ranks)));
}

// Of each bucket, where the recipe keeps so many of so many.
double Pipeline::kept_share() const {
  return static_cast<double>(common_.recipe.keep) / static_cast<double>(common_.recipe.bucket);
}

SelectOptions Pipeline::select_options() const {
  const Recipe& recipe = common_.recipe;
  SelectOptions options{.density = density_now(),
                        .bucket = recipe.bucket,
                        .form = recipe.form,
                        .seed = common_.options.seed,
                        .step = step_,
                        .threads = common_.options.threads};
  if (recipe.keep > 0 && is_searched()) options.density = kept_share();
  if (recipe.keep > 0 && !is_searched()) options.k = recipe.keep;
  if (is_quantized()) options.sign = step_ % 2 == 0 ? Sign::positive : Sign::negative;
  return options;
}

CallOptions Pipeline::call_options() const {
  const Recipe& recipe = common_.recipe;
  return {.algorithm = recipe.row,
          .density = recipe.keep > 0 ? kept_share() : density_now(),
          .index_coding = recipe.indices,
          .value_coding = recipe.values,
          .coded_values = recipe.coded,
          .residual = recipe.residual,
          .teams = common_.teams,
          .seed = common_.options.seed,
          .step = step_,
          .deadline_seconds = common_.options.deadline_seconds,
          .reproducible = common_.options.reproducible};
}

// Exchanges of a step share the links, where a ring, whose segments are passed on at once, leaves fewer gaps than rows
// that the model has as equals; and a named row explores nothing.
CallOptions Pipeline::dense_options() const {
  const Recipe& recipe = common_.recipe;
  CallOptions options = call_options();
  options.density = 1;
  options.teams = 1;
  if (!is_dense_row(recipe.row)) options.algorithm = kAutoDense;
  options.value_coding = dense_codec();
  const bool is_choice = options.algorithm == kAuto || options.algorithm == kAutoDense;
  const bool is_apart = !is_together_ && route_ == Route::dense;
  if (is_choice && is_apart && options.value_coding.coding == ValueCoding::raw &&
      ring_keeps_up(channel_, choice_by(common_.options.reproducible), parameter_.size)) {
    options.algorithm = "dense_ring";
  }
  return options;
}

CallOptions Pipeline::gather_options() const {
  CallOptions options = call_options();
  options.algorithm = kAuto;
  if (common_.recipe.alternate_signs && !is_quantized()) options.value_coding = {};
  return options;
}

// Who adds contributions up does not weigh them.
Norms Pipeline::norms() const {
  return common_.recipe.aggregate == Aggregate::mean_of_senders ? Norms::computed : Norms::left_out;
}

Accumulation Pipeline::accumulation(double norm) const {
  const Recipe& recipe = common_.recipe;
  Accumulation how{.weight_decay = static_cast<float>(recipe.weight_decay),
                   .momentum = static_cast<float>(recipe.momentum),
                   .nesterov = recipe.nesterov,
                   .decay = static_cast<float>(recipe.decay),
                   .starts_empty = is_empty_ || !recipe.error_feedback};
  const double bound = recipe.clip / std::sqrt(static_cast<double>(common_.ranks));
  if (recipe.clip > 0 && norm > bound) how.factor = static_cast<float>(bound / norm);
  return how;
}

// Borrows: the accumulator is left alone until the exchange is over.
AnyStream Pipeline::whole_accumulator() const { return whole(accumulator_); }

void Pipeline::require_idle() const {
  if (!is_in_flight_) return;
  throw Error(ErrorKind::bad_input, fmt::format("{} is in flight: finish it before it starts again", parameter_.name));
}

void Pipeline::require_phantoms(bool wanted) const {
  if (common_.options.phantoms == wanted) return;
  const char* const reason = wanted ? "was registered without the option phantoms" : "is a phantom and takes no values";
  throw Error(ErrorKind::bad_input, fmt::format("{} {}", parameter_.name, reason));
}

void Pipeline::require_size(std::size_t values) const {
  require_phantoms(false);
  if (values == parameter_.size) return;
  throw Error(ErrorKind::bad_input, fmt::format("{} has {} values, not {}", parameter_.name, parameter_.size, values));
}

void Pipeline::begin_step() {
  if (journal_) save_before_step();
  route_ = route_now();
  is_together_ = travels_together(route_);
  stats_ = {.step = step_ + 1, .route = to_string(route_), .begin_seconds = clock_seconds()};
  taken_ = {};
  energy_density_ = 0;
  is_finite_ = true;
  is_void_ = false;
}

void Pipeline::refuse_together(const std::string& why) {
  const Error error = Error(ErrorKind::bad_input, why).at_rank(channel_.rank());
  break_communicator(channel_, error);
  throw error;
}

// Everything that comes to the accumulator, but where a selector adds in its own pass, and then looks itself.
void Pipeline::add_up(const Accumulation& how, std::span<const float> gradient, std::span<const float> weights) {
  const auto add = [&] { return accumulate(how, gradient, weights, velocity_, accumulator_); };
  const bool is_finite = timed(stats_.accumulate_seconds, add);
  is_empty_ = false;
  if (is_finite) return;
  const auto is_beyond = [](float value) { return !std::isfinite(value); };
  const auto place = std::ranges::find_if(accumulator_, is_beyond) - accumulator_.begin();
  refuse_together(
      fmt::format("{}: what is accumulated is no longer finite at index {}, in step {}: {} outgrew f32; "
                  "lower the learning rate or clip the gradients",
                  parameter_.name, place, step_ + 1, velocity_.empty() ? "its residual" : "its velocity or residual"));
}

void Pipeline::start(const Given& given) {
  const std::span<const float> gradient = given.gradient, weights = given.weights;
  require_idle();
  require_size(gradient.size());
  if (common_.recipe.weight_decay != 0 && weights.size() != gradient.size()) {
    throw Error(ErrorKind::bad_input, fmt::format("{}: weight_decay needs {} weights, not {}", parameter_.name,
                                                  gradient.size(), weights.size()));
  }
  begin_step();
  const auto look = [&] {
    if (!copies_gradient() || sends_lent(given)) return inspect(gradient);
    return inspect_and_copy(gradient, place_of_copy(), ArrayWriter(common_.values), sent_share());
  };
  const Inspection seen = timed(stats_.accumulate_seconds, look);
  stats_.gradient_norm = seen.norm;
  contributes_ = is_finite_ = !seen.not_finite_at;
  if (contributes_) return run_stages(given, seen.norm);
  const std::uint64_t index = *seen.not_finite_at;
  if (common_.options.non_finite == NonFinitePolicy::error) {
    refuse_together(
        fmt::format("the gradient of {} is not finite at index {}, in step {}", parameter_.name, index, step_ + 1));
  }
  if (flags_void_steps()) return send_nothing();
  // The value travels alone, and everyone who gets it knows that the step is void.
  send(Stream<float>::from_pairs(parameter_.size, std::span(&index, 1), gradient.subspan(index, 1)));
}

void Pipeline::run_stages(const Given& given, double norm) {
  const std::span<const float> gradient = given.gradient, weights = given.weights;
  if (common_.recipe.energy > 0) {
    const auto look = [&] { return density_for_energy(gradient, common_.recipe.energy); };
    energy_density_ = timed(stats_.select_seconds, look);
  }
  const Accumulation how = accumulation(norm);
  const bool selects = route_ == Route::selected || route_ == Route::gathered;
  if (selects && common_.recipe.selector != "none") return send(share_of(select(how, gradient, weights)));
  if (sends_lent(given)) return send(whole(gradient));
  if (copies_gradient()) return send(whole(place_of_copy()));
  add_up(how, gradient, weights);
  if (route_ == Route::accumulator) {
    if (flags_void_steps()) before_.assign(accumulator_.begin(), accumulator_.end());
    return send_accumulator(Accumulator(accumulator_));
  }
  if (route_ == Route::low_rank) return send_factors(accumulator_);
  if (sent_share() != 1) scale(accumulator_, sent_share());  // nothing stays in it
  send(whole_accumulator());
}

// What a selector took, as it travels. With error feedback what a sum could not hold comes back at once.
AnyStream Pipeline::share_of(const AnyStream& selection) {
  constexpr float kLargest = 65504;
  if (route_ != Route::selected || common_.recipe.values.coding != ValueCoding::f16) return selection;
  const float share = sent_share();
  if (!common_.recipe.error_feedback) return scaled(selection, share, std::numeric_limits<float>::max());
  const float bound = kLargest / (share * static_cast<float>(common_.ranks));
  put_back_excess(accumulator_, selection, bound);
  return scaled(selection, share, bound);
}

// What a selector would take out, as many values as it is asked for, or everything.
AnyStream Pipeline::phantom_contribution() const {
  const Recipe& recipe = common_.recipe;
  const std::uint64_t size = parameter_.size;
  const bool selects = (route_ == Route::selected || route_ == Route::gathered) && recipe.selector != "none";
  if (!selects) return AnyStream::phantom(ValueType::f32, size, {0, size}, Layout::dense, size);
  std::uint64_t taken = values_of_share(density_now(), size);
  if (recipe.keep > 0) taken = size / recipe.bucket * recipe.keep + std::min(recipe.keep, size % recipe.bucket);
  return AnyStream::phantom(ValueType::f32, size, {0, size}, Layout::sparse, std::min(taken, size));
}

// The rank has no arrays, so that it settles as one that does not contribute.
void Pipeline::start_phantom() {
  require_idle();
  require_phantoms(true);
  begin_step();
  contributes_ = false;
  if (route_ == Route::low_rank) return send_factors({});
  if (route_ == Route::accumulator) return send_accumulator(Accumulator::phantom(ValueType::f32, parameter_.size));
  send(phantom_contribution());
}

void Pipeline::skip() {
  require_idle();
  begin_step();
  contributes_ = false;
  send_nothing();
}

void Pipeline::send_nothing() {
  if (route_ == Route::low_rank) return send_factors({});
  if (route_ != Route::accumulator) return send(AnyStream::empty(ValueType::f32, parameter_.size));
  // What merges of other ranks' values drop here comes to rest in it.
  guest_.assign(parameter_.size, 0.0f);
  send_accumulator(Accumulator(std::span<float>(guest_)));
}

// Values leave the accumulator here. Where the sum of gradient and accumulator is all there is to do first, the
// selector makes it in its own pass.
AnyStream Pipeline::select(const Accumulation& how, std::span<const float> gradient, std::span<const float> weights) {
  if (how.is_sum() && reuse_now() == 1) {
    SelectOptions options = select_options();
    options.decay = how.decay;
    const auto select_now = [&] {
      return accumulate_and_select<float>(selector_now(), accumulator_, gradient, options).stream;
    };
    taken_ = timed(stats_.select_seconds, [&] { return told_to_all(select_now); });
    return taken_;
  }
  add_up(how, gradient, weights);
  taken_ = timed(stats_.select_seconds, [&] { return told_to_all([&] { return select_from_accumulator(); }); });
  return taken_;
}

// What a selector refuses, such as a residual that has overflowed, the others would not hear of.
template <class Work>
AnyStream Pipeline::told_to_all(Work work) {
  try {
    return work();
  } catch (const Error& error) {
    const Error told(error.kind(), fmt::format("{}: {}", parameter_.name, error.what()));
    break_communicator(channel_, told);
    throw told;
  }
}

AnyStream Pipeline::select_from_accumulator() {
  if (threshold_.threshold > 0 && threshold_.age < reuse_now()) {
    if (std::optional<AnyStream> passed = select_by_old_threshold()) return *passed;
  }
  Selection found = select_in_place<float>(selector_now(), accumulator_, select_options());
  threshold_ = {found.threshold, 1};
  return found.stream;
}

// Nothing where too few values pass: then the accumulator is as it was.
std::optional<AnyStream> Pipeline::select_by_old_threshold() {
  SelectOptions options = select_options();
  const double share = common_.recipe.keep > 0 ? kept_share() : *options.density;
  const std::uint64_t k = values_of_share(share, parameter_.size);
  options.threshold = threshold_.threshold;
  options.cap = kMostSurvivors * k;
  Selection found = select_in_place<float>("threshold_filter", accumulator_, options);
  if (found.passed * kFewestSurvivors < k) {
    put_back(accumulator_, found.stream);
    return std::nullopt;
  }
  threshold_.age = found.passed > options.cap ? reuse_now() : threshold_.age + 1;
  return found.stream;
}

void Pipeline::send(AnyStream contribution) {
  stats_.taken = contribution.nnz();
  stats_.exchange_begin_seconds = clock_seconds();
  try {
    send_void_flag();
    if (is_together_ && route_ == Route::dense) {
      group_->contribute_all(member_, contribution, dense_options());
    } else if (is_together_) {
      group_->contribute_selection(member_, std::move(contribution), call_options());
    } else if (route_ == Route::dense) {
      request_ = iallreduce(channel_, std::move(contribution), dense_options(), &learned_->dense);
    } else if (route_ == Route::selected) {
      request_ = iallreduce(channel_, std::move(contribution), call_options(), &learned_->sparse);
    } else if (route_ == Route::gathered) {
      gathering_ = igather_contributions(channel_, std::move(contribution), gather_options(), norms(),
                                         coding_loss_of(common_.recipe));
    }
  } catch (...) {
    give_back();
    throw;
  }
  note_sent();
}

void Pipeline::send_accumulator(Accumulator values) {
  stats_.exchange_begin_seconds = clock_seconds();
  send_void_flag();
  request_ = iallreduce(channel_, values, call_options(), &learned_->sparse);
  note_sent();
}

void Pipeline::send_factors(std::span<const float> matrix) {
  stats_.taken = matrix.size();
  stats_.exchange_begin_seconds = clock_seconds();
  send_void_flag();
  low_rank_->start(matrix, dense_options());
  note_sent();
}

// Before the exchange, which may start sums of its own later on: ranks number what they start on a channel alike.
void Pipeline::send_void_flag() {
  if (!flags_void_steps()) return;
  const double flag[] = {is_finite_ ? 0.0 : 1.0};
  void_flag_ = icombine(channel_, flag, Op::max());
}

void Pipeline::note_sent() {
  if (group_ != nullptr && !is_together_) group_->stay_away(member_);
  step_ += 1;
  is_in_flight_ = true;
}

bool Pipeline::test() {
  if (void_flag_.valid() && !void_flag_.test()) return false;
  if (is_together_) return group_->test(member_);
  if (route_ == Route::low_rank) return low_rank_->test();
  return (!request_.valid() || request_.test()) && (!gathering_.valid() || gathering_.test());
}

std::span<const float> Pipeline::residual() const {
  if (!keeps_residual(common_.recipe)) return {};
  return accumulator_;
}

}  // namespace tulle::gradient
