#include "collectives/input_classes.hpp"

#include <algorithm>
#include <cmath>
#include <map>

#include "collectives/experience.hpp"
#include "tulle/base/crc32c.hpp"

namespace tulle {
namespace {

// Farther from the last call of a class, in decades, is another one.
constexpr double kHalfWidth = 0.5;
// More of them on one dimension and type tell nothing apart.
constexpr std::size_t kMostClasses = 32;
// Calls remembered, and how many of the last must have come in the same order before.
constexpr std::size_t kRemembered = 64, kLongestOrder = 8;
// What a gather may take of a call. More would show; with less the classes of cheap calls would be guessed.
constexpr double kAgreementShare = 0.05;

double decades(double nnz) { return std::log10(std::max(nnz, 1.0)); }

class History final : public ChannelMemory {
 public:
  InputClasses& at(const Shape& shape) { return classes_[{shape.dimension, shape.type}]; }

 private:
  std::map<std::pair<std::uint64_t, ValueType>, InputClasses> classes_;
};

}  // namespace

std::size_t InputClasses::place_of(double nnz) {
  const auto distance = [&](const InputClass& each) { return std::abs(decades(each.nnz) - decades(nnz)); };
  const auto nearest = std::ranges::min_element(classes_, {}, distance);
  const bool is_near = nearest != classes_.end() && distance(*nearest) <= kHalfWidth;
  if (is_near || classes_.size() == kMostClasses) return static_cast<std::size_t>(nearest - classes_.begin());
  classes_.emplace_back().nnz = nnz;
  return classes_.size() - 1;
}

InputClass& InputClasses::of(double nnz) { return classes_[place_of(nnz)]; }

InputClass& InputClasses::told(double density) {
  const int decade = density > 0 ? static_cast<int>(std::floor(std::log10(density))) : std::numeric_limits<int>::min();
  const auto found = std::ranges::find(told_, decade, [](const auto& each) { return each.first; });
  if (found != told_.end()) return found->second;
  told_.emplace_back().first = decade;
  return told_.back().second;
}

InputClass* InputClasses::expected() {
  const std::size_t calls = order_.size();
  const std::span<const std::uint8_t> order(order_);
  for (std::size_t length = calls == 0 ? 0 : std::min(kLongestOrder, calls - 1); length > 0; --length) {
    for (std::size_t next = calls - 1; next >= length; --next) {
      const bool is_alike = std::ranges::equal(order.subspan(next - length, length), order.last(length));
      if (is_alike) return &classes_[order[next]];
    }
  }
  return nullptr;
}

bool InputClasses::can_afford_agreement(const InputClass& expected, const CostInput& shape) const {
  const double rounds = std::ceil(std::log2(std::max(2, static_cast<int>(shape.ranks))));
  const double gather = agreement_seconds_ > 0 ? agreement_seconds_ : rounds * shape.profile.alpha_seconds;
  return gather <= kAgreementShare * typical_seconds(expected.state.experience);
}

void InputClasses::note_agreement(double slowest_seconds) {
  if (slowest_seconds <= 0) return;
  agreement_seconds_ = agreement_seconds_ > 0 ? std::min(agreement_seconds_, slowest_seconds) : slowest_seconds;
}

void InputClasses::forget() {
  classes_.clear();
  told_.clear();
  order_.clear();
  digest_ = 0;
}

// The time that ranks told belongs to the class that they assumed: elsewhere it would be another row's or other data's.
void InputClasses::learn(InputClass* assumed, bool is_told, const Lesson& lesson, const Outcome& outcome) {
  const std::uint64_t lessons[] = {outcome.contributed, lesson.last_call, algorithm_number(lesson.row), is_told};
  digest_ = crc32c(std::as_bytes(std::span(lessons)), digest_);
  if (is_told) return tulle::learn(assumed->state, lesson, outcome);
  if (lesson.row.needs == Needs::native_allreduce) return;  // which counts no contributions
  const double nnz = static_cast<double>(outcome.contributed) / lesson.shape.ranks;
  const std::size_t place = place_of(nnz);
  InputClass& seen = classes_[place];
  Lesson told = lesson;
  if (&seen != assumed) told.last_call = 0;
  tulle::learn(seen.state, told, outcome);
  seen.nnz = nnz;
  if (order_.size() == kRemembered) order_.erase(order_.begin());
  order_.push_back(static_cast<std::uint8_t>(place));
}

InputClasses& history_of(const Communicator& communicator, const Shape& shape) {
  std::unique_ptr<ChannelMemory>& memory = communicator.memory();
  if (!memory) memory = std::make_unique<History>();
  return static_cast<History&>(*memory).at(shape);
}

}  // namespace tulle
