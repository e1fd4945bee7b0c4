#include "collectives/experience.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace tulle {
namespace {

constexpr double kTicksPerSecond = 1e7;
// The first call of a row pays for connections and memory and is not counted; a median wants three.
constexpr std::uint32_t kTrialRatios = 3;
// Rows are tried early; later, one call in so many looks whether a row that was nearly as good has become better.
constexpr std::uint64_t kEarlyCalls = 32, kLookEvery = 64;
// Between looks the row is only now and then weighed against the others.
constexpr std::uint64_t kDecideEvery = 16;
static_assert(kLookEvery % kDecideEvery == 0);
// How many times better than the known rows an untried one is thought to meet its expected time.
constexpr double kMostDoubt = 2;
// Beyond this change of the data, ratios say nothing any more.
constexpr double kSameData = 2;

double median_of(std::span<const float> ratios) {
  std::array<float, Experience::kRemembered> sorted{};
  const auto end = std::ranges::copy(ratios, sorted.begin()).out;
  std::sort(sorted.begin(), end);
  return sorted[ratios.size() / 2];
}

std::span<const float> ratios_of(const Experience::Row& row) {
  return std::span(row.ratios).first(std::min<std::size_t>(row.known, Experience::kRemembered));
}

Experience::Row& row_of(Experience& experience, std::uint8_t number) {
  const auto found = std::ranges::find(experience.rows, number, &Experience::Row::number);
  return found != experience.rows.end() ? *found : experience.rows.emplace_back(Experience::Row{.number = number});
}

bool is_known(const Experience::Row& row) { return row.known >= kTrialRatios; }

// A row that nobody tried is given the benefit of the doubt: what slows the known rows down may not concern it. But
// where everything takes many times as long as expected, the machine is to blame, and costs still tell rows apart.
double guess(const Experience& experience) {
  double lowest = 0;
  for (const Experience::Row& row : experience.rows) {
    if (row.known == 0) continue;
    const double correction = median_of(ratios_of(row));
    lowest = lowest == 0 ? correction : std::min(lowest, correction);
  }
  return lowest == 0 ? 1 : std::max(std::min(1.0, lowest), lowest / kMostDoubt);
}

}  // namespace

Verdict verdict_on(const Experience& experience, std::uint8_t number) {
  const auto row = std::ranges::find(experience.rows, number, &Experience::Row::number);
  if (row == experience.rows.end() || !is_known(*row)) return {guess(experience), false};
  return {median_of(ratios_of(*row)), true};
}

bool may_explore(const Experience& experience) { return experience.calls < kEarlyCalls || may_look_again(experience); }
bool may_look_again(const Experience& experience) { return experience.calls % kLookEvery == kLookEvery - 1; }

std::uint8_t on_trial(const Experience& experience) {
  if (experience.last_row == 0) return 0;
  const auto row = std::ranges::find(experience.rows, experience.last_row, &Experience::Row::number);
  return row != experience.rows.end() && row->calls < kTrialRatios + 2 ? row->number : 0;
}

std::uint8_t settled_on(const Experience& experience) {
  const std::uint64_t turn = experience.calls % kDecideEvery;
  if (experience.calls < kEarlyCalls || turn == kDecideEvery - 1 || turn == 0) return 0;
  const auto row = std::ranges::find(experience.rows, experience.last_row, &Experience::Row::number);
  const bool has_proved = row != experience.rows.end() && row->calls > kTrialRatios + 3;
  return has_proved ? row->number : 0;
}

void note_call(Experience& experience, Ticks last_call, std::uint8_t row, double expected_seconds, double nnz) {
  if (nnz > kSameData * experience.nnz || experience.nnz > kSameData * nnz) {
    experience = {};
    experience.nnz = nnz;
  } else if (experience.last_row != 0 && last_call > 0 && experience.last_expected_seconds > 0) {
    Experience::Row& last = row_of(experience, experience.last_row);
    const double ratio = last_call / kTicksPerSecond / experience.last_expected_seconds;
    if (last.calls > 1) last.ratios[last.known++ % Experience::kRemembered] = static_cast<float>(ratio);
  }
  experience.calls += 1;
  row_of(experience, row).calls += 1;
  experience.last_row = row;
  experience.last_expected_seconds = expected_seconds;
}

Ticks to_ticks(double seconds) {
  constexpr double kMost = std::numeric_limits<Ticks>::max();
  return static_cast<Ticks>(std::clamp(std::ceil(seconds * kTicksPerSecond), 0.0, kMost));
}

}  // namespace tulle
