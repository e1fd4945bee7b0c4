#include "storm/elastic_storm.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <optional>

#include "tulle/base/philox.hpp"
#include "tulle/gradient/elastic.hpp"

namespace tulle::storm {
namespace {

using gradient::ElasticReport;
using gradient::Parameter;
using gradient::ParameterId;
using gradient::Role;
using gradient::Synchronizer;
using gradient::SynchronizerOptions;
using Values = std::vector<float>;

constexpr std::uint64_t kSteps = 3;
constexpr double kExchangeDeadline = 0.05, kAgreeDeadline = 1;

// One that is selected or coded, and two that travel whole and together.
const std::vector<Parameter>& parameters() {
  static const std::vector<Parameter> all = {{"matrix", 48, Role::hidden, 6}, {"bias", 5}, {"norm", 3}};
  return all;
}

constexpr SynchronizerOptions kOptions = {.reproducible = true,
                                          .replica_check_every = 2,
                                          .residual_norms = true,
                                          .deadline_seconds = kExchangeDeadline,
                                          .undo = true};

// Integers whose sums, and shares among up to eight ranks, are exact. A rank has none for `norm` now and then.
Values gradient_of(int rank, std::uint64_t step, ParameterId parameter) {
  constexpr int kDividesBy = 16;
  if (parameter == 2 && (static_cast<std::uint64_t>(rank) + step) % 3 == 0) return {};
  Philox random(step * 8 + parameter, static_cast<std::uint64_t>(rank));
  Values values(parameters()[parameter].size);
  for (float& value : values) value = static_cast<float>((static_cast<int>(random.below(400)) - 200) * kDividesBy);
  return values;
}

// What a rank saw of a step: the last time, where it was repeated.
struct StepSeen {
  std::vector<int> members;  ///< ranks of the job
  std::vector<Values> updates, before, after;
};

struct Life {
  std::vector<Values> weights;
  std::map<std::uint64_t, StepSeen> steps;
  std::vector<Values> kept;  ///< residuals and momenta at the end
  std::optional<ElasticReport> report;
  std::optional<std::uint64_t> grown_at;  ///< the step before which newcomers were taken up
  bool has_begun = false;
  int undone_completed = 0;
  bool is_excluded = false;
  std::string complaint;
};

std::vector<int> members_of(const Communicator& communicator) {
  const auto& ranks = communicator.context()->world_ranks;
  return {ranks.begin(), ranks.end()};
}

std::vector<Values> residuals_of(const Synchronizer& synchronizer) {
  std::vector<Values> all;
  for (ParameterId id = 0; id < parameters().size(); ++id) {
    const std::span<const float> values = synchronizer.residual(id);
    all.emplace_back(values.begin(), values.end());
  }
  return all;
}

std::vector<Values> kept_by(const Synchronizer& synchronizer) {
  std::vector<Values> all = residuals_of(synchronizer);
  for (ParameterId id = 0; id < parameters().size(); ++id) {
    for (const auto values : {synchronizer.momentum(id), synchronizer.outer_momentum(id)}) {
      all.emplace_back(values.begin(), values.end());
    }
  }
  return all;
}

std::vector<Values> zeros() {
  std::vector<Values> all;
  for (const Parameter& parameter : parameters()) all.emplace_back(parameter.size, 0.0f);
  return all;
}

// One step of a rank. Each parameter is applied as soon as it is there, so that a failure leaves the model in between.
Task<> train_step(Communicator& communicator, Synchronizer& synchronizer, std::uint64_t step, Life& life, int rank) {
  StepSeen seen{members_of(communicator), zeros(), residuals_of(synchronizer), {}};
  for (ParameterId id = 0; id < parameters().size(); ++id) {
    const Values gradient = gradient_of(rank, step, id);
    if (!gradient.empty()) synchronizer.start(id, std::span<const float>(gradient));
  }
  synchronizer.end_step();
  for (ParameterId id = 0; id < parameters().size(); ++id) {
    Task<bool> finishing = synchronizer.await_finish_into(id, seen.updates[id]);
    co_await finishing;
    for (std::size_t i = 0; i < seen.updates[id].size(); ++i) life.weights[id][i] -= seen.updates[id][i];
  }
  seen.after = residuals_of(synchronizer);
  if (life.steps.contains(step)) life.undone_completed += 1;
  life.steps[step] = std::move(seen);
}

Task<Synchronizer> make_synchronizer(const ElasticSchedule& schedule, Communicator& communicator) {
  return Synchronizer::await_make(communicator, parameters(), gradient::parse_recipe(schedule.recipe.recipe), kOptions);
}

bool is_newcomer(const ElasticSchedule& schedule, int rank) { return rank >= schedule.ranks - schedule.newcomers; }

// The ranks that begin, on a communicator of their own where others come later.
Task<Communicator> beginners(const ElasticSchedule& schedule, Communicator whole) {
  if (schedule.newcomers == 0) co_return whole;
  Request<Communicator> splitting = whole.isplit(is_newcomer(schedule, whole.rank()) ? 1 : 0);
  Communicator own = co_await splitting;
  co_return own;
}

std::vector<std::span<std::byte>> bytes_of(std::vector<Values>& arrays) {
  std::vector<std::span<std::byte>> bytes;
  for (Values& values : arrays) bytes.push_back(std::as_writable_bytes(std::span(values)));
  return bytes;
}

Task<Synchronizer> begin(const ElasticSchedule& schedule, Communicator current, Communicator whole, Life& life) {
  const std::vector<std::span<std::byte>> arrays = bytes_of(life.weights);
  Task<Synchronizer> making =
      is_newcomer(schedule, whole.rank())
          ? gradient::await_join_elastic(whole, parameters(), gradient::parse_recipe(schedule.recipe.recipe), kOptions,
                                         arrays)
          : make_synchronizer(schedule, current);
  Synchronizer synchronizer = co_await making;
  co_return synchronizer;
}

Task<> live(const ElasticSchedule& schedule, Communicator& whole, Life& life) {
  const int rank = whole.rank();
  Task<Communicator> splitting = beginners(schedule, whole);
  const Communicator first = co_await splitting;
  life.weights = zeros();
  Task<Synchronizer> beginning = begin(schedule, first, whole, life);
  Synchronizer synchronizer = co_await beginning;
  Communicator current = is_newcomer(schedule, rank) ? whole : first;
  life.has_begun = true;
  gradient::ElasticOptions options{
      .steps = kSteps, .synchronizer = &synchronizer, .agree = {.deadline_seconds = kAgreeDeadline}};
  options.agree.quorum = schedule.quorum;
  options.arrays = bytes_of(life.weights);
  options.on_change = [&](Communicator&, const gradient::MembershipChange& change) {
    if (change.joined > 0) life.grown_at = change.step;
  };
  if (schedule.newcomers > 0) {
    options.grow_every = schedule.grow_every;
    options.await_grow = [&](Communicator& members) -> Task<Communicator> {
      co_return members.context() == first.context() ? whole : members;
    };
  }
  const gradient::ElasticProgram step = [&](Communicator& communicator, std::uint64_t number) {
    return train_step(communicator, synchronizer, number, life, rank);
  };
  Task<ElasticReport> running = gradient::await_run_elastic(current, options, step);
  life.report = co_await running;
  life.kept = kept_by(synchronizer);
}

// ---------------------------------------------------------------- an undisturbed training with the same members

struct Course {
  std::vector<std::vector<int>> members;  ///< by step
  std::optional<std::uint64_t> grown_at;
};

// One change of members: newcomers come first, because they came while all were there.
Task<> let_come(const ElasticSchedule& schedule, Communicator whole, std::optional<Synchronizer>& synchronizer,
                std::uint64_t step) {
  if (!synchronizer) {
    Task<Synchronizer> joining = Synchronizer::await_join(whole, schedule.newcomers, parameters(),
                                                          gradient::parse_recipe(schedule.recipe.recipe), kOptions);
    synchronizer.emplace(co_await joining);
    co_return;
  }
  Task<> welcoming = synchronizer->await_welcome(whole, schedule.newcomers);
  co_await welcoming;
  Task<> moving = synchronizer->await_move_to(whole, step);
  co_await moving;
}

Task<> live_undisturbed(const ElasticSchedule& schedule, const Course& course, Communicator& whole, Life& life) {
  const int rank = whole.rank();
  Task<Communicator> first = beginners(schedule, whole);
  Communicator current = co_await first;
  life.weights = zeros();
  std::optional<Synchronizer> synchronizer;
  if (!is_newcomer(schedule, rank)) {
    Task<Synchronizer> making = make_synchronizer(schedule, current);
    synchronizer.emplace(co_await making);
  }
  for (std::uint64_t step = 0; step < kSteps; ++step) {
    if (course.grown_at == step) {
      Task<> coming = let_come(schedule, whole, synchronizer, step);
      co_await coming;
      current = whole;
    }
    if (!synchronizer) continue;
    if (course.members[step] != members_of(current)) {
      const bool stays = std::ranges::find(course.members[step], rank) != course.members[step].end();
      Request<Communicator> splitting = current.isplit(stays ? 0 : 1);
      current = co_await splitting;
      if (!stays) co_return;
      Task<> moving = synchronizer->await_move_to(current, step);
      co_await moving;
    }
    Task<> stepping = train_step(current, *synchronizer, step, life, rank);
    co_await stepping;
  }
  if (synchronizer) life.kept = kept_by(*synchronizer);
}

const std::vector<Life>& undisturbed(const ElasticSchedule& schedule, const Course& course) {
  static std::map<std::string, std::vector<Life>> known;
  const std::string key = fmt::format("{} {} {} {} {}", schedule.recipe.name, schedule.ranks, schedule.newcomers,
                                      fmt::join(course.members, "|"), course.grown_at.value_or(0));
  const auto [place, is_new] = known.try_emplace(key);
  if (!is_new) return place->second;
  place->second.resize(static_cast<std::size_t>(schedule.ranks));
  SimWorld world({.ranks = schedule.ranks, .profile = {}, .faults = {}, .network = {}});
  world.run([&](Communicator& communicator) {
    return live_undisturbed(schedule, course, communicator,
                            place->second[static_cast<std::size_t>(communicator.rank())]);
  });
  return place->second;
}

// ---------------------------------------------------------------- what must hold

struct Storm {
  const ElasticSchedule& schedule;
  const SimWorld& world;
  const std::vector<Life>& lives;

  const Life& of(int rank) const { return lives[static_cast<std::size_t>(rank)]; }
  bool is_new(int rank) const { return is_newcomer(schedule, rank); }
  // Whether the others went on with it to the end: a newcomer may have come in vain.
  bool is_member(int rank) const {
    const auto has_it = [&](const Life& life) {
      const auto last = life.steps.find(kSteps - 1);
      return life.report && last != life.steps.end() &&
             std::ranges::find(last->second.members, rank) != last->second.members.end();
    };
    return std::ranges::any_of(lives, has_it);
  }
  std::vector<int> through() const {
    std::vector<int> ranks;
    for (int rank = 0; rank < schedule.ranks; ++rank) {
      if (!world.is_dead(rank) && of(rank).report) ranks.push_back(rank);
    }
    return ranks;
  }
};

std::string who_has_not_come_through(const Storm& storm) {
  for (int rank = 0; rank < storm.schedule.ranks; ++rank) {
    if (storm.world.is_dead(rank)) continue;
    if (storm.is_new(rank) && !storm.is_member(rank)) continue;
    if (!storm.of(rank).complaint.empty()) return fmt::format("rank {}: {}", rank, storm.of(rank).complaint);
    if (!storm.of(rank).report) return fmt::format("rank {} lives and has not come through", rank);
    if (storm.of(rank).report->steps != kSteps) return fmt::format("rank {} counts other steps", rank);
  }
  return "";
}

std::string what_differs(const Storm& storm, const std::vector<int>& through) {
  const Life& first = storm.of(through.front());
  for (const int rank : through) {
    const Life& life = storm.of(rank);
    if (life.weights != first.weights) return fmt::format("ranks {} and {} have different models", through[0], rank);
    if (!storm.is_new(rank) && life.grown_at != first.grown_at) return "newcomers came to some ranks alone";
    for (const auto& [step, seen] : life.steps) {
      if (seen.members != first.steps.at(step).members) return fmt::format("different members in step {}", step);
      const bool is_scaled = first.grown_at == step && !storm.schedule.recipe.is_exact;
      if (step > 0 && !is_scaled && life.steps.contains(step - 1) && seen.before != life.steps.at(step - 1).after) {
        return fmt::format("the residual of rank {} changed between steps {} and {}", rank, step - 1, step);
      }
    }
  }
  return "";
}

std::string what_an_undisturbed_training_has_not(const Storm& storm, const std::vector<int>& through) {
  const Life& first = storm.of(through.front());
  Course course{.members = {}, .grown_at = first.grown_at};
  for (std::uint64_t step = 0; step < kSteps; ++step) course.members.push_back(first.steps.at(step).members);
  const std::vector<Life>& expected = undisturbed(storm.schedule, course);
  for (const int rank : through) {
    const Life& other = expected[static_cast<std::size_t>(rank)];
    const bool is_same = storm.is_new(rank) || storm.of(rank).weights == other.weights;
    if (!is_same) return "the model is not that of an undisturbed training";
    if (storm.of(rank).kept != other.kept) {
      return fmt::format("rank {} keeps other residuals or momenta than in an undisturbed training", rank);
    }
  }
  return "";
}

// Of one step, where all its members lived to tell: what they gave is the sum and what stayed.
bool gave_what_was_delivered(const Storm& storm, const StepSeen& seen, std::uint64_t step, ParameterId id) {
  for (std::size_t i = 0; i < parameters()[id].size; ++i) {
    double given = 0;
    for (const int rank : seen.members) {
      const StepSeen& own = storm.of(rank).steps.at(step);
      const Values gradient = gradient_of(rank, step, id);
      given +=
          (gradient.empty() ? 0 : gradient[i]) + (own.before[id].empty() ? 0 : own.before[id][i] - own.after[id][i]);
    }
    if (given != seen.updates[id][i]) return false;
  }
  return true;
}

std::string what_was_lost(const Storm& storm, const std::vector<int>& through, ElasticOutcome& outcome) {
  if (!storm.schedule.recipe.is_exact) return "";
  for (std::uint64_t step = 0; step < kSteps; ++step) {
    const StepSeen& seen = storm.of(through.front()).steps.at(step);
    const auto has_told = [&](int rank) {
      const auto& steps = storm.of(rank).steps;
      return steps.contains(step) && steps.at(step).members == seen.members;
    };
    if (!std::ranges::all_of(seen.members, has_told)) continue;
    outcome.checked_sums += 1;
    for (ParameterId id = 0; id < parameters().size(); ++id) {
      if (!gave_what_was_delivered(storm, seen, step, id)) {
        return fmt::format("in step {} the sum of {} is not what was given", step, parameters()[id].name);
      }
    }
  }
  return "";
}

std::string what_is_wrong(const Storm& storm, ElasticOutcome& outcome) {
  const auto lives_without_beginning = [&](int rank) {
    return !storm.world.is_dead(rank) && !storm.is_new(rank) && !storm.of(rank).has_begun;
  };
  for (int rank = 0; rank < storm.schedule.ranks; ++rank) {
    if (!lives_without_beginning(rank)) continue;
    if (outcome.dead > 0) return "";  // somebody died before there was a synchronizer
    return fmt::format("rank {} has not begun: {}", rank, storm.of(rank).complaint);
  }
  if (std::string complaint = who_has_not_come_through(storm); !complaint.empty()) return complaint;
  const std::vector<int> through = storm.through();
  if (through.empty()) return "nobody is left";
  if (std::string complaint = what_differs(storm, through); !complaint.empty()) return complaint;
  if (std::string complaint = what_was_lost(storm, through, outcome); !complaint.empty()) return complaint;
  return what_an_undisturbed_training_has_not(storm, through);
}

void note_error(Life& life, const std::exception_ptr& error) {
  try {
    if (error) std::rethrow_exception(error);
  } catch (const Error& thrown) {
    life.is_excluded = thrown.kind() == ErrorKind::excluded;
    life.complaint = thrown.what();
  }
}

}  // namespace

ElasticOutcome run(const ElasticSchedule& schedule) {
  SimWorld world(
      {.ranks = schedule.ranks, .profile = {}, .seed = schedule.seed, .faults = schedule.faults, .network = {}});
  std::vector<Life> lives(static_cast<std::size_t>(schedule.ranks));
  ElasticOutcome outcome;
  try {
    const auto errors = world.try_run([&](Communicator& communicator) {
      return live(schedule, communicator, lives[static_cast<std::size_t>(communicator.rank())]);
    });
    for (int rank = 0; rank < schedule.ranks; ++rank) {
      Life& life = lives[static_cast<std::size_t>(rank)];
      outcome.dead += world.is_dead(rank);
      if (world.is_dead(rank)) continue;
      note_error(life, errors[static_cast<std::size_t>(rank)]);
      outcome.undone_begun += life.report ? static_cast<int>(life.report->undone) : 0;
      outcome.undone_completed += life.undone_completed;
      outcome.joined += life.report && is_newcomer(schedule, rank);
    }
    outcome.complaint = what_is_wrong({schedule, world, lives}, outcome);
  } catch (const Error& error) {  // the simulation has come to a stop
    outcome.complaint = error.what();
  }
  return outcome;
}

ElasticSchedule random_elastic_schedule(std::uint64_t number, const TrainedRecipe& recipe) {
  Philox random(number);
  ElasticSchedule schedule{
      .ranks = 2 + static_cast<int>(random.below(6)), .recipe = recipe, .seed = number, .faults = {}};
  if (schedule.ranks > 2 && random.below(3) == 0) {
    schedule.newcomers = 1;
    schedule.grow_every = 1 + random.below(2);
  }
  const int old = schedule.ranks - schedule.newcomers;
  if (old == 2 || random.below(2) == 0) schedule.quorum = Quorum::any;
  if (random.below(2) == 0) schedule.faults.max_delay_seconds = random.below(2) == 0 ? 1e-5 : 1e-3;
  const int most = schedule.quorum == Quorum::any ? old - 1 : (old - 1) / 2;
  constexpr double kLate[] = {0, 1e-5, 1e-3};
  for (int deaths = 1 + static_cast<int>(random.below(static_cast<std::uint64_t>(most))); deaths > 0; --deaths) {
    schedule.faults.deaths.push_back(
        {.rank = static_cast<int>(random.below(static_cast<std::uint64_t>(schedule.ranks))),
         .after_messages = random.below(static_cast<std::uint64_t>(10 * schedule.ranks)),
         .told_within_seconds = kLate[random.below(3)]});
  }
  return schedule;
}

std::string describe(const ElasticSchedule& schedule) {
  std::string text =
      fmt::format("{}, {} ranks, {} of them later, quorum {}, seed {}, delays up to {} s", schedule.recipe.name,
                  schedule.ranks, schedule.newcomers, schedule.quorum == Quorum::any ? "any" : "majority",
                  schedule.seed, schedule.faults.max_delay_seconds);
  for (const SimDeath& death : schedule.faults.deaths) {
    text += fmt::format("; rank {} dies after {} messages, told within {} s", death.rank, death.after_messages,
                        *death.told_within_seconds);
  }
  return text;
}

}  // namespace tulle::storm
