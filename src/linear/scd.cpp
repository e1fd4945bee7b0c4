// How it works. Every rank has the data by columns and the margins of all rows, and owns a *slice* of the coordinates
// (a feature that occurs, for one vector of weights). In an *iteration* it takes the next k of its slice, in random
// order, and moves each to the minimum of a parabola that lies above the loss, with L1 and L2 exactly: w ← shrink(w −
// g/L, l1/L). Its own margins follow at once. Then an allgather gives everyone all (coordinate, change) pairs, and each
// rank adds the others' columns to its margins. An epoch visits every coordinate once.
//
// Ranks that move coordinates of the same row at the same time overshoot, so L is multiplied by a *damping*: at most P,
// when every row has features of every rank's k, and near 1 when rows have few of them (Richtárik and Takáč 2016).
// An intercept is a column of ones; rank 0 moves it as often as it takes to cost as much as the features do.
#include "linear/scd.hpp"

#include <algorithm>
#include <array>
#include <numeric>

#include "linear/columns.hpp"
#include "linear/losses.hpp"
#include "tulle/base/philox.hpp"

namespace tulle::linear {
namespace {

enum Tail : std::size_t { kStop, kSave, kTailValues };

class Scd final : public Method {
 public:
  Scd(Session& session, Dataset& data);

  Task<> run_epoch() override;
  Task<double> epoch_loss() override;
  LinearModel model() const override;
  std::string row() const override { return row_.empty() ? "sparse_allgather" : row_; }
  std::vector<std::span<std::byte>> state() override {
    return {std::as_writable_bytes(std::span(weights_)), std::as_writable_bytes(std::span(intercepts_))};
  }
  void restored() override { compute_margins(); }

 private:
  struct Change {
    std::uint64_t place;  // vector·(features + 1) + feature
    float amount;
  };

  double target(std::size_t vector, std::size_t row) const;
  double row_weight(std::size_t row) const { return class_weights_.empty() ? 1 : class_weights_[classes_[row]]; }
  template <class L, class Row, class Value>
  float update(std::size_t vector, std::size_t count, Row row_of, Value value_of, float weight, Penalty penalty) const;
  void shuffle_slice();
  void move_coordinates(std::uint64_t iteration);
  float move_coordinate(std::size_t coordinate);
  float move_intercept(std::size_t vector);
  AnyStream changes_as_stream();
  void apply(const AnyStream& gathered);
  void apply_change(std::uint64_t place, float amount);
  void add_to_margins(std::size_t coordinate, float amount);
  void compute_margins();
  double damping() const;

  Session& session_;
  const TrainOptions& options_;
  Columns columns_;
  std::size_t vectors_;
  std::vector<double> class_weights_;
  std::vector<std::uint32_t> classes_;
  std::string row_;  // of an allreduce; empty: an allgather
  double damping_;
  std::vector<float> weights_;  // by coordinate: vector·columns + column
  std::vector<float> intercepts_;
  std::vector<double> margins_;  // vector·rows + row
  std::vector<std::uint32_t> order_;
  std::size_t slice_begin_, slice_end_;
  std::uint64_t iterations_of_epoch_, intercept_period_;
  PoolVector<Change> changes_;
};

Scd::Scd(Session& session, Dataset& data)
    : session_(session),
      options_(session.options),
      columns_(data),
      vectors_(vectors_of(session.facts.labels.size())),
      class_weights_(class_weights(session.facts, session.options)),
      row_(options_.aggregation == kAuto || options_.aggregation == "sparse"
               ? std::string()
               : session.group.row_of(options_.aggregation)),
      weights_(vectors_ * columns_.size()),
      intercepts_(vectors_) {
  const auto ranks = static_cast<std::size_t>(session.group.size()),
             rank = static_cast<std::size_t>(session.group.rank());
  slice_begin_ = weights_.size() * rank / ranks;
  slice_end_ = weights_.size() * (rank + 1) / ranks;
  const std::uint64_t largest_slice = (weights_.size() + ranks - 1) / ranks;
  iterations_of_epoch_ = std::max<std::uint64_t>(1, (largest_slice + options_.coordinates - 1) / options_.coordinates);
  const std::uint64_t nonzeros_of_iteration = vectors_ * columns_.nonzeros() / iterations_of_epoch_;
  intercept_period_ = std::max<std::uint64_t>(1, columns_.rows() / std::max<std::uint64_t>(1, nonzeros_of_iteration));
  damping_ = options_.damping > 0 ? options_.damping : damping();
  for (const float label : columns_.labels()) {
    classes_.push_back(static_cast<std::uint32_t>(class_of(label, session.facts.labels)));
  }
  compute_margins();
}

// 1 + (P − 1)·(the chance that another rank's k meet a given row, at most 1).
double Scd::damping() const {
  const double share =
      static_cast<double>(std::min<std::size_t>(options_.coordinates, slice_end_ - slice_begin_ + 1)) /
      static_cast<double>(std::max<std::size_t>(1, columns_.size() / static_cast<std::size_t>(session_.group.size())));
  const double met = static_cast<double>(columns_.longest_row()) / session_.group.size() * share;
  return 1 + (session_.group.size() - 1) * std::min(1.0, met);
}

double Scd::target(std::size_t vector, std::size_t row) const {
  if (options_.loss == Loss::squares) return columns_.labels()[row];
  return classes_[row] == (vectors_ == 1 ? 1 : vector) ? 1 : -1;
}

// How far a weight moves, from the slopes of the rows that its column has.
template <class L, class Row, class Value>
float Scd::update(std::size_t vector, std::size_t count, Row row_of, Value value_of, float weight,
                  Penalty penalty) const {
  const double* const margins = margins_.data() + vector * columns_.rows();
  const auto rows = static_cast<double>(columns_.rows());
  double slope = 0, bound = 0, curvature = 0, largest = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t row = row_of(i);
    const double value = value_of(i), scale = row_weight(row);
    const double slope_of_row = L::slope(margins[row], target(vector, row));
    slope += scale * value * slope_of_row;
    bound += scale * value * value * L::kCurvature;
    curvature += scale * value * value * L::curvature(margins[row], slope_of_row);
    largest = std::max(largest, std::abs(value));
  }
  const double gradient = slope / rows + penalty.l2 * weight;
  const auto step_by = [&](double loss_curvature) {
    const double both = damping_ * (loss_curvature / rows + penalty.l2);
    return both == 0 ? 0 : soft_threshold(weight - gradient / both, penalty.l1 / both) - weight;
  };
  // A Newton step that moves margins by d is too long by d/ln(1 + d) at most (Sun and Tran-Dinh 2019), and one by the
  // bound is never too long.
  const double reach = std::abs(step_by(curvature)) * largest;
  const double trusted = reach > 0 ? curvature * reach / std::log1p(reach) : bound;
  return static_cast<float>(step_by(std::min(bound, trusted)));
}

float Scd::move_coordinate(std::size_t coordinate) {
  const std::size_t vector = coordinate / columns_.size();
  const Columns::View column = columns_[coordinate % columns_.size()];
  return visit_loss(options_.loss, [&]<class L>() {
    return update<L>(
        vector, column.rows.size(), [&](std::size_t i) { return column.rows[i]; },
        [&](std::size_t i) { return column.value(i); }, weights_[coordinate], options_.penalty);
  });
}

float Scd::move_intercept(std::size_t vector) {
  return visit_loss(options_.loss, [&]<class L>() {
    return update<L>(
        vector, columns_.rows(), [](std::size_t i) { return i; }, [](std::size_t) { return 1.0; }, intercepts_[vector],
        {});
  });
}

void Scd::shuffle_slice() {
  order_.resize(slice_end_ - slice_begin_);
  std::iota(order_.begin(), order_.end(), static_cast<std::uint32_t>(slice_begin_));
  Philox random(options_.seed, static_cast<std::uint64_t>(session_.position.epoch) << 32 |
                                   static_cast<std::uint64_t>(session_.group.rank()));
  for (std::size_t i = order_.size(); i > 1; --i) std::swap(order_[i - 1], order_[random.below(i)]);
}

Task<> Scd::run_epoch() {
  Position& position = session_.position;
  shuffle_slice();
  for (std::uint64_t i = position.step_of_epoch; i < iterations_of_epoch_ && !session_.is_stopping; ++i) {
    move_coordinates(i);
    AnyStream mine = changes_as_stream();
    AnyStream gathered;
    if (row_.empty()) {
      gathered = co_await session_.group.gather(std::move(mine));
    } else {
      gathered = co_await session_.group.sum(std::move(mine), row_);
    }
    apply(gathered);
    position.steps += 1;
    position.step_of_epoch += 1;
    session_.tell_step(iterations_of_epoch_);
    if (std::exchange(session_.saves, false)) session_.save(*this);
  }
}

// The margins follow at once, so that a rank's own coordinates do not get in each other's way.
void Scd::move_coordinates(std::uint64_t iteration) {
  changes_.clear();
  std::uint64_t pairs = 0;
  const std::size_t first = std::min<std::size_t>(iteration * options_.coordinates, order_.size());
  const std::size_t last = std::min<std::size_t>(first + options_.coordinates, order_.size());
  for (std::size_t i = first; i < last; ++i) {
    const std::size_t coordinate = order_[i], column = coordinate % columns_.size();
    const float amount = move_coordinate(coordinate);
    pairs += columns_[column].rows.size();
    if (amount == 0) continue;
    changes_.push_back(
        {coordinate / columns_.size() * (session_.facts.features + 1) + columns_.feature(column), amount});
    apply_change(changes_.back().place, amount);
  }
  const bool moves_intercept = options_.intercept && session_.group.rank() == 0 && iteration % intercept_period_ == 0;
  for (std::size_t vector = 0; vector < vectors_ && moves_intercept; ++vector) {
    const float amount = move_intercept(vector);
    changes_.push_back({vector * (session_.facts.features + 1) + session_.facts.features, amount});
    apply_change(changes_.back().place, amount);
  }
  session_.group.charge(2 * pairs);
}

AnyStream Scd::changes_as_stream() {
  std::sort(changes_.begin(), changes_.end(), [](const Change& a, const Change& b) { return a.place < b.place; });
  const std::uint64_t places = vectors_ * (session_.facts.features + 1);
  PoolVector<Change> all(changes_);
  const std::array<float, kTailValues> tail = {session_.votes_to_stop(), session_.votes_to_save()};
  for (std::size_t i = 0; i < kTailValues; ++i) {
    if (tail[i] > 0) all.push_back({places + i, tail[i]});
  }
  Buffer indices = Buffer::allocate(all.size() * sizeof(std::uint32_t));
  Buffer values = Buffer::allocate(all.size() * sizeof(float));
  for (std::size_t i = 0; i < all.size(); ++i) {
    indices.as_mutable<std::uint32_t>()[i] = static_cast<std::uint32_t>(all[i].place);
    values.as_mutable<float>()[i] = all[i].amount;
  }
  const std::uint64_t dimension = places + kTailValues;
  return AnyStream::sparse(ValueType::f32, dimension, {0, dimension}, std::move(indices), std::move(values));
}

// Everyone's changes but this rank's own, which are applied already.
void Scd::apply(const AnyStream& gathered) {
  const std::uint64_t places = vectors_ * (session_.facts.features + 1);
  auto mine = changes_.begin();
  std::uint64_t pairs = 0;
  const auto take = [&](std::uint64_t place, float amount) {
    if (place >= places) {
      if (place - places == kStop) session_.is_stopping = true;
      if (place - places == kSave) session_.saves = true;
      return;
    }
    while (mine != changes_.end() && mine->place < place) ++mine;
    if (mine != changes_.end() && mine->place == place) return;
    apply_change(place, amount);
    pairs += 1;
  };
  const auto values = gathered.values_buffer().as<float>();
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (values[i] != 0) take(gathered.is_dense() ? i : gathered.indices_buffer().as<std::uint32_t>()[i], values[i]);
  }
  session_.group.charge(pairs * columns_.nonzeros() / std::max<std::size_t>(1, columns_.size()));
}

// Margins get what the weight really changed by, after its rounding: so they never drift apart.
void Scd::apply_change(std::uint64_t place, float amount) {
  const std::size_t vector = place / (session_.facts.features + 1);
  const auto feature = static_cast<std::uint32_t>(place % (session_.facts.features + 1));
  const bool is_intercept = feature == session_.facts.features;
  const std::size_t coordinate = is_intercept ? 0 : vector * columns_.size() + columns_.column_of(feature);
  float& weight = is_intercept ? intercepts_[vector] : weights_[coordinate];
  const float before = std::exchange(weight, weight + amount);
  if (!is_intercept) return add_to_margins(coordinate, weight - before);
  double* const margins = margins_.data() + vector * columns_.rows();
  for (std::size_t row = 0; row < columns_.rows(); ++row) margins[row] += weight - before;
}

void Scd::add_to_margins(std::size_t coordinate, float amount) {
  double* const margins = margins_.data() + coordinate / columns_.size() * columns_.rows();
  const Columns::View column = columns_[coordinate % columns_.size()];
  for (std::size_t i = 0; i < column.rows.size(); ++i)
    margins[column.rows[i]] += static_cast<double>(amount) * column.value(i);
}

void Scd::compute_margins() {
  margins_.assign(vectors_ * columns_.rows(), 0.0);
  for (std::size_t i = 0; i < margins_.size(); ++i) margins_[i] = intercepts_[i / columns_.rows()];
  for (std::size_t coordinate = 0; coordinate < weights_.size(); ++coordinate) {
    if (weights_[coordinate] != 0) add_to_margins(coordinate, weights_[coordinate]);
  }
}

// Every rank could compute all of it; each does its share, and the sum is the same everywhere.
Task<double> Scd::epoch_loss() {
  const std::size_t rows = columns_.rows();
  const auto ranks = static_cast<std::size_t>(session_.group.size()),
             rank = static_cast<std::size_t>(session_.group.rank());
  double loss = 0;
  visit_loss(options_.loss, [&]<class L>() {
    for (std::size_t vector = 0; vector < vectors_; ++vector) {
      for (std::size_t row = rows * rank / ranks; row < rows * (rank + 1) / ranks; ++row) {
        loss += row_weight(row) * L::value(margins_[vector * rows + row], target(vector, row));
      }
    }
  });
  const std::vector<double> mine{loss};
  const std::vector<double> sum = co_await session_.group.agree(mine);
  co_return sum[0] / static_cast<double>(rows);
}

LinearModel Scd::model() const {
  LinearModel model = session_.empty_model();
  for (std::size_t coordinate = 0; coordinate < weights_.size(); ++coordinate) {
    const std::size_t vector = coordinate / columns_.size();
    model.weights[vector * session_.facts.features + columns_.feature(coordinate % columns_.size())] =
        weights_[coordinate];
  }
  model.intercepts = intercepts_;
  return model;
}

}  // namespace

std::unique_ptr<Method> make_scd(Session& session, Dataset& data) { return std::make_unique<Scd>(session, data); }

}  // namespace tulle::linear
