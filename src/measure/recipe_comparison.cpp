#include "measure/recipe_comparison.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>
#include <thread>
#include <utility>

#include "measure/model_shapes.hpp"
#include "measure/random_values.hpp"
#include "tulle/base/crc32c.hpp"
#include "tulle/base/philox.hpp"
#include "tulle/collectives/collectives.hpp"
#include "tulle/comm/control.hpp"

namespace tulle::measure {
namespace {

constexpr std::string_view kDense = "dense";

struct Contender {
  RecipeRow row;
  gradient::Recipe recipe;
  std::unique_ptr<gradient::Synchronizer> synchronizer;  // stays where it is, for its log
  std::optional<gradient::StepLog> log;
  std::vector<double> seconds;  // of the timed steps, slowest rank
  std::vector<double> exposed_seconds;
};

// One step of a recipe as this rank saw it.
struct Step {
  double seconds = 0;
  double exposed_seconds = 0;
  double bytes_sent = 0;
  double delivered = 0;
};

// What all ranks had before a step must be what was delivered and what they have after it. Where sums are coded on
// their way, what that rounds off is nobody's residual.
bool conserves(const gradient::Recipe& recipe) {
  const bool is_plain = recipe.momentum == 0 && recipe.decay == 1 && recipe.weight_decay == 0 && recipe.clip == 0 &&
                        recipe.outer == gradient::OuterStep::none && recipe.aggregate == gradient::Aggregate::mean;
  const bool is_sum = recipe.exchange == gradient::Exchange::sum;
  const bool keeps_the_rest = gradient::keeps_residual(recipe) || (is_sum && recipe.selector == "none");
  return is_plain && keeps_the_rest && (!is_sum || recipe.values.coding == ValueCoding::raw);
}

// Cosine of the angle between two vectors; 0 where one of them is no direction.
double alignment(std::span<const float> a, std::span<const float> b) {
  double ab = 0, aa = 0, bb = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const auto x = static_cast<double>(a[i]), y = static_cast<double>(b[i]);
    ab += x * y;
    aa += x * x;
    bb += y * y;
  }
  return aa > 0 && bb > 0 && std::isfinite(ab) ? ab / std::sqrt(aa * bb) : 0;
}

// Few values of many point only roughly where all of them do. Ten times what chance would give is no chance.
double least_alignment(std::uint64_t values) { return std::min(0.1, 10 / std::sqrt(static_cast<double>(values))); }

class RecipeComparison {
 public:
  RecipeComparison(Communicator communicator, const RecipeComparisonSpec& spec, Progress* progress)
      : communicator_(std::move(communicator)),
        spec_(spec),
        progress_(progress),
        values_(values_of(spec.parameters)),
        gradients_(values_),
        work_(values_),
        weights_(values_) {
    std::uint64_t first = 0;
    for (const gradient::Parameter& parameter : spec.parameters) {
      first_value_.push_back(std::exchange(first, first + parameter.size));
    }
  }

  Task<std::vector<RecipeRow>> run() {
    co_await make_contenders();
    for (int step = 0; step < spec_.warmup + spec_.repeats; ++step) co_await run_all_once(step);
    for (Contender& contender : contenders_) {
      if (contender.log) co_await contender.log->await_close();
    }
    for (Contender& contender : contenders_) summarize(contender);
    std::vector<RecipeRow> rows;
    for (Contender& contender : contenders_) rows.push_back(std::move(contender.row));
    co_return rows;
  }

 private:
  Task<> make_contenders() {
    std::vector<std::string> texts = spec_.recipes;
    if (std::ranges::find(texts, kDense) == texts.end()) texts.emplace(texts.begin(), kDense);
    for (const std::string& text : texts) co_await add(text);
    order_.resize(contenders_.size());
    std::iota(order_.begin(), order_.end(), std::size_t{0});
  }

  Task<> add(const std::string& text) {
    Contender contender;
    contender.recipe = gradient::parse_recipe(text);
    contender.row.values = values_;
    contender.row.every = contender.recipe.every;
    contender.row.verified = true;  // until it is not
    const gradient::SynchronizerOptions options{
        .seed = spec_.seed, .first_channel = next_channel_, .deadline_seconds = spec_.deadline_seconds};
    Task<gradient::Synchronizer> making =
        gradient::Synchronizer::await_make(communicator_, spec_.parameters, contender.recipe, options);
    contender.synchronizer = std::make_unique<gradient::Synchronizer>(co_await making);
    next_channel_ = contender.synchronizer->end_channel();
    contender.row.recipe = text;
    const bool is_asked_for = std::ranges::find(spec_.recipes, text) != spec_.recipes.end();
    const gradient::StepLogOptions files{.lines = spec_.steps_path, .trace = is_asked_for ? spec_.trace_path : ""};
    if (!files.lines.empty() || !files.trace.empty()) {
      Task<gradient::StepLog> opening = gradient::StepLog::await_open(*contender.synchronizer, files);
      contender.log.emplace(co_await opening);
    }
    contenders_.push_back(std::move(contender));
  }

  // Each repeat has an order of its own, the same on all ranks.
  Task<> run_all_once(int step) {
    report(0, "drawing gradients");
    draw_gradients(step);
    std::shuffle(order_.begin(), order_.end(), shuffler_);
    for (const std::size_t next : order_) {
      Contender& contender = contenders_[next];
      report(0, contender.row.recipe);
      if (contender.row.verified) co_await run_once(contender, step);
      report(1, contender.row.recipe);
    }
  }

  void draw_gradients(int step) {
    const Philox seeds(spec_.seed, static_cast<std::uint64_t>(step));
    const auto rank = static_cast<std::uint64_t>(communicator_.rank());
    const std::vector<float> common = random_values(values_, Distribution::gaussian, seeds.at(0));
    gradients_ = random_gradient(common, seeds.at(1 + rank));
  }

  Task<> run_once(Contender& contender, int step) {
    const bool is_timed = step >= spec_.warmup;
    work_ = gradients_;
    const std::vector<float> before = is_timed ? std::vector<float>() : with_residuals(contender);
    auto meeting = ibarrier(communicator_);
    co_await meeting;
    const Step mine = co_await make_step(contender);
    const std::array<double, 4> numbers{mine.seconds, mine.exposed_seconds, mine.bytes_sent, mine.delivered};
    auto agreeing = icombine(communicator_, numbers, Op::max());
    const std::vector<double> slowest = co_await agreeing;
    contender.row.density = slowest[3] / static_cast<double>(std::max<std::uint64_t>(values_, 1));
    if (!is_timed) co_return co_await verify(contender, before);
    if (contender.log) co_await contender.log->await_add_step({.seconds = slowest[0]});
    contender.seconds.push_back(slowest[0]);
    contender.exposed_seconds.push_back(slowest[1]);
    contender.row.bytes_sent_max = std::max(contender.row.bytes_sent_max, static_cast<std::uint64_t>(slowest[2]));
  }

  Task<Step> make_step(Contender& contender) {
    gradient::Synchronizer& synchronizer = *contender.synchronizer;
    const Transport& clock = communicator_.engine()->transport();
    const auto count = static_cast<gradient::ParameterId>(spec_.parameters.size());
    for (std::uint64_t local = 0; local < contender.recipe.every; ++local) synchronizer.count_local_step();
    const double started = clock.now();
    for (gradient::ParameterId left = count; left > 0; --left) {
      if (spec_.back_propagation_seconds > 0) co_await play_back_propagation(synchronizer, left - 1);
      synchronizer.start(left - 1, part_of(work_, left - 1), weights_for(contender, left - 1));
    }
    synchronizer.end_step();
    const double all_started = clock.now();
    for (gradient::ParameterId id = 0; id < count; ++id) {
      co_await synchronizer.await_finish_into(id, part_of(work_, id));
    }
    Step step{.seconds = clock.now() - started};
    for (gradient::ParameterId id = 0; id < count; ++id) {
      const gradient::ParameterStats& stats = synchronizer.stats(id);
      step.exposed_seconds += stats.wait_seconds;
      step.bytes_sent += static_cast<double>(stats.bytes_sent);
      step.delivered += static_cast<double>(stats.delivered);
    }
    // Synchronizers time themselves by the processor's clock; on a virtual one only waiting takes time.
    if (clock.name() == "sim") step.exposed_seconds = started + step.seconds - all_started;
    co_return step;
  }

  // Exchanges that are under way go on meanwhile.
  Task<> play_back_propagation(gradient::Synchronizer& synchronizer, gradient::ParameterId id) {
    const Transport& clock = communicator_.engine()->transport();
    const double share = static_cast<double>(spec_.parameters[id].size) / static_cast<double>(values_);
    const double seconds = share * spec_.back_propagation_seconds;
    if (clock.name() == "sim") co_return co_await charge(seconds);
    constexpr auto kPause = std::chrono::microseconds(20);
    for (const double until = clock.now() + seconds; clock.now() < until;) {
      if (id + 1 < spec_.parameters.size()) synchronizer.test(id + 1);
      std::this_thread::sleep_for(kPause);
    }
  }

  // On a virtual clock time passes where an operation says so.
  Task<> charge(double seconds) {
    const OperationSettings settings{};
    const auto operation = communicator_.start(settings, [seconds](Operation& started) -> Task<> {
      started.charge(seconds);
      co_return;
    });
    const auto no_error = std::make_shared<std::optional<Request<void>::Stored>>(Request<void>::Stored());
    Request<void> charging(communicator_.engine(), operation, no_error);
    co_await charging;
  }

  std::span<float> part_of(std::vector<float>& values, gradient::ParameterId id) {
    return std::span(values).subspan(first_value_[id], spec_.parameters[id].size);
  }
  std::span<const float> weights_for(const Contender& contender, gradient::ParameterId id) {
    return contender.recipe.weight_decay == 0 ? std::span<const float>() : part_of(weights_, id);
  }

  // What this rank brings to a step: its gradient and what is left of earlier ones.
  std::vector<float> with_residuals(Contender& contender) {
    std::vector<float> all = gradients_;
    add_residuals(contender, all);
    return all;
  }
  void add_residuals(Contender& contender, std::vector<float>& values) {
    for (gradient::ParameterId id = 0; id < spec_.parameters.size(); ++id) {
      const std::span<const float> residual = contender.synchronizer->residual(id);
      const std::span<float> part = part_of(values, id);
      for (std::size_t i = 0; i < residual.size(); ++i) part[i] += residual[i];
    }
  }

  Task<std::vector<float>> sum_of_all(const std::vector<float>& values) {
    const AnyStream mine = Stream<float>::dense(std::span<const float>(values));
    const CallOptions options{.algorithm = "dense_split_allgather"};
    auto request = iallreduce(communicator_, mine, options);
    const Outcome outcome = co_await request;
    co_return Stream<float>(outcome.stream).to_vector();
  }

  // The updates as far as each rank can tell, and equal bits on all of them.
  Task<> verify(Contender& contender, const std::vector<float>& before) {
    const bool is_local = contender.recipe.exchange == gradient::Exchange::none;
    std::string fault;
    if (is_local) {
      fault = work_ == gradients_ ? "" : "a rank's own gradient was changed";
    } else if (conserves(contender.recipe)) {
      fault = co_await loss_of(contender, before);
    } else {
      const std::vector<float> sum = co_await sum_of_all(gradients_);
      fault = alignment(work_, sum) > least_alignment(values_) ? "" : "does not point where the gradients do";
    }
    const double bits = is_local ? 0 : crc32c(std::as_bytes(std::span<const float>(work_)));
    const std::array<double, 3> numbers{fault.empty() ? 0.0 : 1.0, bits, -bits};
    auto agreeing = icombine(communicator_, numbers, Op::max());
    const std::vector<double> all = co_await agreeing;
    RecipeRow& row = contender.row;
    if (all[0] != 0) row.failure = fault.empty() ? "is wrong elsewhere" : fault;
    if (all[1] != -all[2]) row.failure += row.failure.empty() ? "ranks differ" : ", and ranks differ";
    row.verified = row.failure.empty();
  }

  Task<std::string> loss_of(Contender& contender, const std::vector<float>& before) {
    std::vector<float> left(values_);
    add_residuals(contender, left);
    const std::vector<float> had = co_await sum_of_all(before);
    const std::vector<float> has = co_await sum_of_all(left);
    const auto ranks = static_cast<float>(communicator_.size());
    for (std::size_t i = 0; i < had.size(); ++i) {
      const float delivered = ranks * work_[i];
      const float allowed = 1e-5f * (1 + std::abs(had[i]) + std::abs(has[i]) + std::abs(delivered));
      if (!(std::abs(delivered + has[i] - had[i]) <= allowed)) co_return "loses values";
    }
    co_return std::string();
  }

  void summarize(Contender& contender) {
    if (!contender.row.verified || contender.seconds.empty()) return;
    contender.row.seconds = quartiles(contender.seconds);
    contender.row.exposed_seconds = quartiles(contender.exposed_seconds).median;
    const auto is_dense = [](const Contender& other) { return other.row.recipe == kDense; };
    const Contender& dense = *std::ranges::find_if(contenders_, is_dense);
    if (!dense.row.verified) return;
    std::vector<double> ratios;
    for (std::size_t i = 0; i < contender.seconds.size(); ++i) {
      if (dense.seconds[i] > 0) ratios.push_back(contender.seconds[i] / dense.seconds[i]);
    }
    if (!ratios.empty()) contender.row.ratio = quartiles(ratios).median / static_cast<double>(contender.row.every);
  }

  void report(std::uint64_t steps, std::string_view what) {
    if (progress_ != nullptr) progress_->advance(steps, what);
  }

  Communicator communicator_;
  const RecipeComparisonSpec& spec_;
  Progress* progress_;
  std::uint64_t values_;
  std::vector<std::uint64_t> first_value_;  // of each parameter
  std::vector<float> gradients_;            // of this rank in the present repeat, parameter after parameter
  std::vector<float> work_;                 // the same, which a recipe replaces by updates
  std::vector<float> weights_;              // all 0
  std::vector<Contender> contenders_;
  std::vector<std::size_t> order_;
  std::uint32_t next_channel_ = 1;
  Philox shuffler_{spec_.seed};
};

}  // namespace

std::uint64_t steps_of(const RecipeComparisonSpec& spec) {
  const bool has_dense = std::ranges::find(spec.recipes, kDense) != spec.recipes.end();
  return static_cast<std::uint64_t>(spec.warmup + spec.repeats) * (spec.recipes.size() + (has_dense ? 0 : 1));
}

Task<std::vector<RecipeRow>> compare_recipes(Communicator communicator, const RecipeComparisonSpec& spec,
                                             Progress* progress) {
  RecipeComparison comparison(std::move(communicator), spec, progress);
  co_return co_await comparison.run();
}

}  // namespace tulle::measure
