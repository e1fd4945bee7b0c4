#include "collectives/experience.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace tulle {
namespace {

constexpr double kTicksPerSecond = 1e7;
// The first call of a row pays for connections and memory and is not counted; what the last took is told by the next.
constexpr std::uint32_t kTrialRatios = 1;
// Calls that decide each; later the row is only now and then weighed against the others.
constexpr std::uint64_t kEarlyCalls = 32, kDecideEvery = 16;
// What may go to learning: of the time spent, and at once, in calls of the best row. More would show in the first ten
// calls; with less a row that promises nearly as much would wait for dozens.
constexpr double kLearningShare = 0.04, kLearningCredit = 0.5;
// How far times may be from what a row takes in the long run, as a share: of a row that nobody tried, or once.
constexpr double kDoubt = 0.75;
// After so many calls of other rows, what is known of one counts half.
constexpr double kHalfLife = 512;
// A call that took longer than this many of the fastest row's was disturbed, and is not the trial's fault.
constexpr double kDisturbed = 10;
// Beyond these changes of the data, ratios say little, and nothing any more. A training loop drifts past the first
// again and again; what slowed a row down there does so here.
constexpr double kSameData = 2, kOtherData = 16;

double median_of(std::span<const float> ratios) {
  std::array<float, Experience::kRemembered> sorted{};
  const auto end = std::ranges::copy(ratios, sorted.begin()).out;
  const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(ratios.size() / 2);
  std::nth_element(sorted.begin(), middle, end);
  return *middle;
}

void note_ratio(Experience::Row& row, double ratio) {
  row.ratios[row.known++ % Experience::kRemembered] = static_cast<float>(ratio);
  row.correction = median_of(std::span(row.ratios).first(std::min<std::size_t>(row.known, Experience::kRemembered)));
}

Experience::Row& row_of(Experience& experience, std::uint8_t number) {
  const auto found = std::ranges::find(experience.rows, number, &Experience::Row::number);
  return found != experience.rows.end() ? *found : experience.rows.emplace_back(Experience::Row{.number = number});
}

bool is_known(const Experience::Row& row) { return row.known >= kTrialRatios; }

// A row that nobody tried is thought to be off by as much as the best that was: where things take longer than expected
// the machine is to blame, and costs still tell rows apart. That it may be better is what its hope says, and the budget
// decides; a promise needs no budget.
double guess(const Experience& experience) {
  double lowest = 0;
  for (const Experience::Row& row : experience.rows) {
    if (row.known == 0) continue;
    lowest = lowest == 0 ? row.correction : std::min(lowest, row.correction);
  }
  return lowest == 0 ? 1 : lowest;
}

bool differ_by(double factor, double one, double other) { return one > factor * other || other > factor * one; }

// Keeps one ratio of each row. What was spent before does not count: there is something to learn again, and every call
// decides anew for a while.
void start_anew(Experience& experience, double nnz) {
  if (differ_by(kOtherData, nnz, experience.nnz)) experience = {};
  for (Experience::Row& row : experience.rows) {
    row.known = std::min<std::uint32_t>(row.known, 1);
    row.ratios[0] = static_cast<float>(row.correction);
    row.last_call = 0;
  }
  experience.calls = 0;
  experience.nnz = nnz;
  experience.spent_seconds = experience.learning_seconds = 0;
}

double typical_seconds(const Experience::Row& row) { return row.correction * row.expected_seconds; }

// The known row that takes the least, as far as its last call tells; null where none is known.
const Experience::Row* fastest(const Experience& experience) {
  const Experience::Row* found = nullptr;
  for (const Experience::Row& row : experience.rows) {
    if (is_known(row) && (found == nullptr || typical_seconds(row) < typical_seconds(*found))) found = &row;
  }
  return found;
}

// Books the time of the call before. What another row than the fastest took beyond that one was spent on learning.
void book(Experience& experience, double seconds) {
  experience.spent_seconds += seconds;
  const Experience::Row* const best = fastest(experience);
  if (best == nullptr || best->number == experience.last_row || !experience.last_is_chosen) return;
  const double least = typical_seconds(*best);
  experience.learning_seconds += std::clamp(seconds - least, 0.0, (kDisturbed - 1) * least);
}

}  // namespace

Verdict verdict_on(const Experience& experience, std::uint8_t number) {
  const auto row = std::ranges::find(experience.rows, number, &Experience::Row::number);
  if (row == experience.rows.end() || !is_known(*row)) return {guess(experience), 1 - kDoubt, false};
  const double age = static_cast<double>(experience.calls - row->last_call);
  const double remembered = std::min<double>(row->known, Experience::kRemembered) / (1 + age / kHalfLife);
  return {row->correction, 1 - kDoubt / std::sqrt(std::max(1.0, remembered)), true};
}

bool may_spend(const Experience& experience, double seconds, double best_seconds) {
  const double budget = kLearningShare * experience.spent_seconds + kLearningCredit * best_seconds;
  return seconds <= 0 || experience.learning_seconds + seconds <= budget;
}

std::uint8_t on_trial(const Experience& experience) {
  if (!experience.last_is_chosen) return 0;
  const auto row = std::ranges::find(experience.rows, experience.last_row, &Experience::Row::number);
  return row != experience.rows.end() && row->calls < kTrialCalls ? row->number : 0;
}

std::uint8_t settled_on(const Experience& experience) {
  const std::uint64_t turn = experience.calls % kDecideEvery;
  if (!experience.last_is_chosen || experience.calls < kEarlyCalls || turn == kDecideEvery - 1 || turn == 0) return 0;
  const auto row = std::ranges::find(experience.rows, experience.last_row, &Experience::Row::number);
  const bool has_proved = row != experience.rows.end() && row->calls > kTrialCalls + 1;
  return has_proved ? row->number : 0;
}

double typical_seconds(const Experience& experience) {
  const Experience::Row* const row = fastest(experience);
  return row != nullptr ? typical_seconds(*row) : experience.last_expected_seconds;
}

void note_call(Experience& experience, const CallNote& call) {
  if (experience.last_row != 0 && call.last_call > 0 && experience.last_expected_seconds > 0) {
    Experience::Row& last = row_of(experience, experience.last_row);
    const double seconds = call.last_call / kTicksPerSecond;
    if (last.calls > 1) note_ratio(last, seconds / experience.last_expected_seconds);
    book(experience, seconds);
  }
  if (differ_by(kSameData, call.nnz, experience.nnz)) start_anew(experience, call.nnz);
  Experience::Row& row = row_of(experience, call.row);
  row.calls += 1;
  row.expected_seconds = call.expected_seconds;
  experience.calls += 1;
  row.last_call = experience.calls;
  experience.last_row = call.row;
  experience.last_is_chosen = call.is_chosen;
  experience.last_expected_seconds = call.expected_seconds;
}

Ticks to_ticks(double seconds) {
  constexpr double kMost = std::numeric_limits<Ticks>::max();
  return static_cast<Ticks>(std::clamp(std::ceil(seconds * kTicksPerSecond), 0.0, kMost));
}

}  // namespace tulle
