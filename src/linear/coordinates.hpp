// A model by coordinates, with the margins of all rows: what coordinate descent moves.
//
// A *coordinate* is a feature that occurs, for one vector of weights: vector·columns + column. Its *place* is where it
// lies among all features and intercepts: vector·(features + 1) + feature; an intercept has the place behind its
// vector's features. Places are what ranks tell each other.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "linear/columns.hpp"
#include "linear/coordinate_step.hpp"
#include "linear/facts.hpp"
#include "tulle/linear/train.hpp"

namespace tulle::linear {

/// A change of what lies at a place, and the rank that made it.
struct RankChange {
  int rank;
  std::uint64_t place;
  float amount;
};

class Coordinates {
 public:
  /// All weights are 0. `options` must outlive this.
  Coordinates(Dataset& data, const Facts& facts, const TrainOptions& options, std::span<const float> intercepts);

  const Columns& columns() const { return columns_; }
  std::size_t vectors() const { return vectors_; }
  /// Coordinates, intercepts not counted.
  std::size_t size() const { return weights_.size(); }
  std::uint64_t places() const { return vectors_ * stride_; }
  /// The place of a coordinate; places() for size().
  std::uint64_t place_of(std::size_t coordinate) const;
  std::uint64_t intercept_place(std::size_t vector) const { return (vector + 1) * stride_ - 1; }
  std::size_t nonzeros_of(std::size_t coordinate) const { return columns_[coordinate % columns_.size()].rows.size(); }

  /// How many ranks move coordinates of a row at a time, one number for each margin (vector·rows + row). Without it
  /// there is one rank.
  void set_overlaps(PoolVector<float> overlaps) { overlaps_ = std::move(overlaps); }
  bool has_overlaps() const { return !overlaps_.empty(); }
  /// The mean overlap of the entries of coordinates [begin, end).
  double mean_overlap(std::size_t begin, std::size_t end) const;
  /// One number for all margins, from now on.
  void set_overlap(double overlap) { overlap_ = overlap; }
  double overlap() const { return overlap_; }

  /// How far to move it, from the slopes of the rows that its column has.
  float step_of(std::size_t coordinate) const;
  float intercept_step_of(std::size_t vector) const;
  /// Moves what lies at `place`, and the margins with it, and gives by how much. Costs its column's non-zeros.
  float change(std::uint64_t place, float amount);
  /// A change that is not settled yet.
  struct Ahead {
    std::uint64_t place;
    float amount;
    float before, moved;  // of the weight
    double overlap;       // as set for all margins, else 0
  };
  /// The same, but margins move as if all ranks that overlap did the same.
  Ahead change_ahead(std::uint64_t place, float amount);
  /// Goes back to before `ahead`, and changes by `amount` as everybody does. REQUIRES: its place has not moved since.
  void settle(const Ahead& ahead, float amount);
  /// By how much the changes of ranks point the same way: the square of the length by which they move margins together,
  /// over the sum of the squares of each rank's. 1 where they are independent, the number of ranks where they are
  /// equal. REQUIRES: changes of a rank are neighbours.
  double alignment(std::span<const RankChange> changes);

  /// The loss of the rows [begin, end), summed.
  double loss(std::size_t begin, std::size_t end) const;
  void copy_to(LinearModel& model) const;
  /// The arrays of a checkpoint; where they were filled, restored() makes margins of them.
  std::vector<std::span<std::byte>> state();
  void restored();

 private:
  double target(std::size_t vector, std::size_t row) const;
  double row_weight(std::size_t row) const { return class_weights_.empty() ? 1 : class_weights_[classes_[row]]; }
  template <class RowOf, class ValueOf>
  ColumnSums sums_of(std::size_t vector, std::size_t count, RowOf row_of, ValueOf value_of) const;
  double overlap_of(std::size_t margin, double overlap) const {
    if (overlap > 0) return overlap;
    return overlaps_.empty() ? 1 : overlaps_[margin];
  }
  float& weight_at(std::uint64_t place);
  float move_weight(std::uint64_t place, float amount);
  /// Calls visit(margin, x) for the column that lies at `place`.
  template <class Visit>
  void for_each_entry(std::uint64_t place, Visit visit) const;
  void add_to_margins(std::uint64_t place, double amount);

  const TrainOptions& options_;
  Columns columns_;
  std::size_t vectors_;
  std::uint64_t stride_;
  std::vector<double> class_weights_;
  PoolVector<std::uint32_t> classes_;
  PoolVector<float> weights_;  // by coordinate
  PoolVector<float> intercepts_;
  PoolVector<double> margins_;      // vector·rows + row
  PoolVector<float> overlaps_;      // likewise
  double overlap_ = 0;              // of all margins; 0: as overlaps_ say
  PoolVector<float> part_, total_;  // by margin, of alignment(): 0 between its calls
};

}  // namespace tulle::linear
