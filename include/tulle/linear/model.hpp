// Linear models: what a trained one is, how it predicts, and its file.
//
// Threads: a model may be read by several threads, and changed by one while no other uses it. The functions keep no
// state.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tulle/base/positional_reader.hpp"
#include "tulle/linear/rows.hpp"

#pragma GCC visibility push(default)
namespace tulle::linear {

/// What a margin m costs where the label is y: ±1 except for squares, where y is the number to predict.
enum class Loss : std::uint8_t {
  logistic = 1,       ///< log(1 + exp(−y·m))
  hinge = 2,          ///< max(0, 1 − y·m): the linear SVM
  squared_hinge = 3,  ///< max(0, 1 − y·m)²
  squares = 4,        ///< (m − y)² / 2: least squares; lasso and elastic net by their penalties
};
std::string_view to_string(Loss loss);
/// Throws bad_input that lists the allowed names.
Loss loss_from(std::string_view name);

/// Added to the mean loss: l1·‖w‖₁ + l2/2·‖w‖₂². Intercepts are not penalized.
struct Penalty {
  double l1 = 0;
  double l2 = 0;
};

struct LinearModel {
  Loss loss = Loss::logistic;
  std::uint64_t features = 0;
  /// The labels, increasing; a model of two has one vector of weights, one of more has a vector for each, trained
  /// against the rest. None for squares.
  std::vector<float> classes;
  std::vector<float> weights;     ///< vectors() × features
  std::vector<float> intercepts;  ///< one a vector

  std::size_t vectors() const { return intercepts.size(); }
  bool is_classifier() const { return loss != Loss::squares; }

  /// The row times a vector of weights, and its intercept. O(non-zeros of the row). Indices from `features` on are
  /// ignored: they were not seen in training. REQUIRES: vector < vectors().
  double margin(RowView row, std::size_t vector = 0) const;
  /// A label, or the predicted number. Costs a margin for each vector. REQUIRES: a classifier has at least two classes.
  float predict(RowView row) const;
  /// The probability of each class, at the cost of predict(). Throws unsupported where the loss is not logistic. With
  /// more than two classes the vectors' probabilities are scaled to sum to 1.
  std::vector<double> probabilities(RowView row) const;
  /// One pass over the weights each.
  double penalty(const Penalty& penalty) const;
  std::uint64_t nonzeros() const;
};

/// The vectors of weights that labels ask for: one for two classes or none.
constexpr std::size_t vectors_of(std::size_t classes) { return classes > 2 ? classes : 1; }

/// Stores what is not zero. docs/linear.md gives the bytes. Throws system; the file at `path` is then as it was.
void save_model(const LinearModel& model, const std::string& path);
/// Reads what save_model() wrote. Throws bad_input saying what is damaged, system where the file cannot be read. Takes
/// 4 × vectors() × features bytes, however few weights are stored.
LinearModel load_model(const PositionalReader& reader);

}  // namespace tulle::linear
#pragma GCC visibility pop
