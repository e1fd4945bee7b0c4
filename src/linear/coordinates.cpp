#include "linear/coordinates.hpp"

#include <utility>

namespace tulle::linear {

Coordinates::Coordinates(Dataset& data, const Facts& facts, const TrainOptions& options,
                         std::span<const float> intercepts)
    : options_(options),
      columns_(data),
      vectors_(vectors_of(facts.labels.size())),
      stride_(facts.features + 1),
      class_weights_(class_weights(facts, options)),
      weights_(vectors_ * columns_.size()),
      intercepts_(intercepts.begin(), intercepts.end()),
      margins_(vectors_ * columns_.rows()) {
  for (const float label : columns_.labels()) {
    classes_.push_back(static_cast<std::uint32_t>(class_of(label, facts.labels)));
  }
  restored();  // margins of the intercepts
}

std::uint64_t Coordinates::place_of(std::size_t coordinate) const {
  if (coordinate == size()) return places();
  return coordinate / columns_.size() * stride_ + columns_.feature(coordinate % columns_.size());
}

double Coordinates::target(std::size_t vector, std::size_t row) const {
  if (options_.loss == Loss::squares) return columns_.labels()[row];
  return classes_[row] == (vectors_ == 1 ? 1 : vector) ? 1 : -1;
}

template <class RowOf, class ValueOf>
ColumnSums Coordinates::sums_of(std::size_t vector, std::size_t count, RowOf row_of, ValueOf value_of) const {
  const double* const margins = margins_.data() + vector * columns_.rows();
  ColumnSums sums;
  visit_loss(options_.loss, [&]<class L>() {
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t row = row_of(i);
      sums.add<L>(value_of(i), margins[row], target(vector, row), row_weight(row),
                  overlap_of(vector * columns_.rows() + row, overlap_));
    }
  });
  return sums;
}

float Coordinates::step_of(std::size_t coordinate) const {
  const Columns::View column = columns_[coordinate % columns_.size()];
  const ColumnSums sums = sums_of(
      coordinate / columns_.size(), column.rows.size(), [&](std::size_t i) { return column.rows[i]; },
      [&](std::size_t i) { return column.value(i); });
  return static_cast<float>(
      coordinate_step(sums, static_cast<double>(columns_.rows()), weights_[coordinate], options_.penalty));
}

float Coordinates::intercept_step_of(std::size_t vector) const {
  const ColumnSums sums = sums_of(
      vector, columns_.rows(), [](std::size_t i) { return i; }, [](std::size_t) { return 1.0; });
  return static_cast<float>(coordinate_step(sums, static_cast<double>(columns_.rows()), intercepts_[vector], {}));
}

float& Coordinates::weight_at(std::uint64_t place) {
  const std::size_t vector = place / stride_;
  if (place == intercept_place(vector)) return intercepts_[vector];
  return weights_[vector * columns_.size() + columns_.column_of(static_cast<std::uint32_t>(place % stride_))];
}

float Coordinates::move_weight(std::uint64_t place, float amount) {
  float& weight = weight_at(place);
  const float before = std::exchange(weight, weight + amount);
  return weight - before;
}

template <class Visit>
void Coordinates::for_each_entry(std::uint64_t place, Visit visit) const {
  const std::size_t vector = place / stride_, first = vector * columns_.rows();
  if (place == intercept_place(vector)) {
    for (std::size_t row = 0; row < columns_.rows(); ++row) visit(first + row, 1.0);
    return;
  }
  const Columns::View column = columns_[columns_.column_of(static_cast<std::uint32_t>(place % stride_))];
  for (std::size_t i = 0; i < column.rows.size(); ++i) visit(first + column.rows[i], column.value(i));
}

void Coordinates::add_to_margins(std::uint64_t place, double amount) {
  for_each_entry(place, [&](std::size_t margin, double x) { margins_[margin] += amount * x; });
}

// Margins get what the weight really changed by, after its rounding: so they never drift apart.
float Coordinates::change(std::uint64_t place, float amount) {
  const float moved = move_weight(place, amount);
  add_to_margins(place, moved);
  return moved;
}

Coordinates::Ahead Coordinates::change_ahead(std::uint64_t place, float amount) {
  const float before = weight_at(place), moved = move_weight(place, amount);
  for_each_entry(place,
                 [&](std::size_t margin, double x) { margins_[margin] += moved * x * overlap_of(margin, overlap_); });
  return {place, amount, before, moved, overlap_};
}

void Coordinates::settle(const Ahead& ahead, float amount) {
  if (amount == ahead.amount && ahead.overlap == 0 && overlaps_.empty()) return;
  weight_at(ahead.place) = ahead.before;
  const float moved = move_weight(ahead.place, amount);
  for_each_entry(ahead.place, [&](std::size_t margin, double x) {
    margins_[margin] += (moved - ahead.moved * overlap_of(margin, ahead.overlap)) * x;
  });
}

double Coordinates::mean_overlap(std::size_t begin, std::size_t end) const {
  double sum = 0, entries = 0;
  for (std::size_t coordinate = begin; coordinate < end; ++coordinate) {
    for_each_entry(place_of(coordinate), [&](std::size_t margin, double) { sum += overlap_of(margin, 0); });
    entries += static_cast<double>(nonzeros_of(coordinate));
  }
  return entries > 0 ? sum / entries : 1;
}

double Coordinates::alignment(std::span<const RankChange> changes) {
  part_.resize(margins_.size());
  total_.resize(margins_.size());
  double apart = 0, together = 0;
  for (std::size_t begin = 0, end = 0; begin < changes.size(); begin = end) {
    while (end < changes.size() && changes[end].rank == changes[begin].rank) ++end;
    const auto of_rank = changes.subspan(begin, end - begin);
    for (const RankChange& change : of_rank) {
      for_each_entry(change.place,
                     [&](std::size_t margin, double x) { part_[margin] += static_cast<float>(change.amount * x); });
    }
    for (const RankChange& change : of_rank) {
      for_each_entry(change.place, [&](std::size_t margin, double) {
        const float moved = std::exchange(part_[margin], 0.0f);
        apart += row_weight(margin % columns_.rows()) * moved * moved;
        total_[margin] += moved;
      });
    }
  }
  for (const RankChange& change : changes) {
    for_each_entry(change.place, [&](std::size_t margin, double) {
      const float moved = std::exchange(total_[margin], 0.0f);
      together += row_weight(margin % columns_.rows()) * moved * moved;
    });
  }
  return apart > 0 ? together / apart : 1;
}

void Coordinates::restored() {
  for (std::size_t i = 0; i < margins_.size(); ++i) margins_[i] = intercepts_[i / columns_.rows()];
  for (std::size_t coordinate = 0; coordinate < size(); ++coordinate) {
    if (weights_[coordinate] != 0) add_to_margins(place_of(coordinate), weights_[coordinate]);
  }
}

double Coordinates::loss(std::size_t begin, std::size_t end) const {
  const std::size_t rows = columns_.rows();
  double loss = 0;
  visit_loss(options_.loss, [&]<class L>() {
    for (std::size_t vector = 0; vector < vectors_; ++vector) {
      for (std::size_t row = begin; row < end; ++row) {
        loss += row_weight(row) * L::value(margins_[vector * rows + row], target(vector, row));
      }
    }
  });
  return loss;
}

void Coordinates::copy_to(LinearModel& model) const {
  for (std::size_t coordinate = 0; coordinate < size(); ++coordinate) {
    const std::size_t vector = coordinate / columns_.size();
    model.weights[vector * (stride_ - 1) + columns_.feature(coordinate % columns_.size())] = weights_[coordinate];
  }
  std::copy(intercepts_.begin(), intercepts_.end(), model.intercepts.begin());
}

std::vector<std::span<std::byte>> Coordinates::state() {
  return {std::as_writable_bytes(std::span(weights_)), std::as_writable_bytes(std::span(intercepts_))};
}

}  // namespace tulle::linear
