// How it works. In a *step* every rank takes its next rows, computes margins and the slopes of the loss, and adds
// slope·row to a gradient. An epoch has as many steps as it takes for no rank to have more than `batch_rows` in one,
// and a rank's rows are spread evenly over them: a small last batch would be a noisy one, and a rank with few rows
// would have no say in the later steps. Behind the gradient's places travels a *tail* of a few numbers: how many rows,
// their loss, and votes to stop or to save. So one allreduce gives all ranks the same sum and the same decisions, and a
// rank that has run out of rows still takes part. The sum is applied at once, or, with a staleness of τ, when τ more
// steps have begun. Sums are applied in order and never sooner, so that a run can be repeated.
#include "linear/sgd.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "linear/batches.hpp"
#include "linear/gradient_accumulator.hpp"
#include "linear/losses.hpp"
#include "linear/weights.hpp"
#include "tulle/stream/reduction.hpp"

namespace tulle::linear {
namespace {

// Unless options say otherwise, an epoch has at least so many steps where there are as many rows, and a step of a rank
// at most so many rows.
constexpr std::uint64_t kSteps = 100, kMostRows = 1000;

enum Tail : std::size_t { kRows, kLoss, kStop, kSave, kTailValues };

class Sgd final : public Method {
 public:
  Sgd(Session& session, Dataset& data, const Start& start, const std::optional<FeatureSums>& sums)
      : session_(session),
        options_(session.options),
        layout_{vectors_of(session.facts.labels.size()), session.facts.features},
        class_weights_(class_weights(session.facts, session.options)),
        row_(session.group.row_of(session.options.aggregation)),
        rows_(data.rows()),
        steps_of_epoch_(steps_for(session.facts.largest_part, options_.batch_rows)),
        data_(data),
        cursor_(data, options_.seed + static_cast<std::uint64_t>(session.group.rank()) * 0x9E3779B97F4A7C15u,
                options_.shuffle),
        replicas_(options_.replicas ? options_.replicas : make_replicas()),
        gradient_(replicas_->gradient(layout_.dimension())),
        weights_(replicas_->weights([&] { return make_weights(start, sums); })),
        sends_lengths_(options_.replicas && session.group.size() > 1 && works_on_dense(row_)) {}

  Task<> run_epoch() override;
  Task<double> epoch_loss() override;
  Task<double> loss() override;
  std::shared_ptr<const Snapshot> snapshot() override;
  std::string row() const override { return row_; }
  std::vector<std::span<std::byte>> state() override { return weights_.state(); }
  void restored() override { replicas_->set_steps(session_.position.steps); }

 private:
  static bool works_on_dense(std::string_view row) {
    if (row == kAuto || row == kAutoSparse) return false;
    return row == kAutoDense || find_algorithm(OperationKind::allreduce, row).input == Layout::dense;
  }
  static std::uint64_t steps_for(std::uint64_t rows, std::uint64_t batch_rows) {
    if (batch_rows == 0) batch_rows = std::clamp<std::uint64_t>(rows / kSteps, 1, kMostRows);
    return (rows + batch_rows - 1) / batch_rows;
  }
  std::unique_ptr<Weights> make_weights(const Start& start, const std::optional<FeatureSums>& sums) const;
  /// Rows of this epoch that the rank has used before `step`.
  std::uint64_t rows_before(std::uint64_t step) const;
  Task<AnyStream> compute_gradient(std::uint64_t rows);
  Task<double> add_vector(std::size_t vector);
  void find_classes();
  double loss_of_vector(std::size_t vector);
  Task<AnyStream> sum(AnyStream gradient);
  void apply(const AnyStream& sum);
  Task<> apply_pending();
  double rate() const;

  Session& session_;
  const TrainOptions& options_;
  GradientLayout layout_;
  std::vector<double> class_weights_;
  std::string row_;
  std::uint64_t rows_, steps_of_epoch_;
  Dataset& data_;
  BatchCursor cursor_;
  std::shared_ptr<Replicas> replicas_;
  GradientAccumulator& gradient_;
  Weights& weights_;
  bool sends_lengths_;  // because simulated ranks know the sum anyway
  Batch batch_;
  PoolVector<std::uint32_t> classes_;  // of the batch's rows
  PoolVector<float> margins_, coefficients_;
};

std::unique_ptr<Weights> Sgd::make_weights(const Start& start, const std::optional<FeatureSums>& sums) const {
  auto weights = options_.schedule == Schedule::adagrad
                     ? make_adagrad_weights(layout_, options_.penalty, feature_rates(sums), start.target_scale)
                     : make_scaled_weights(layout_, options_.penalty);
  weights->set_intercepts(start.intercepts);
  return weights;
}

Task<> Sgd::run_epoch() {
  Position& position = session_.position;
  const std::uint64_t done = position.step_of_epoch;
  const std::exception_ptr damaged =
      failure_of([&] { cursor_.begin_epoch(static_cast<std::uint64_t>(position.epoch), rows_before(done)); });
  if (damaged) session_.failure = damaged;  // the others are told by the vote
  const auto staleness = static_cast<std::size_t>(options_.staleness);
  for (std::uint64_t step = done; step < steps_of_epoch_ && !session_.is_stopping; ++step) {
    AnyStream gradient = co_await compute_gradient(rows_before(step + 1) - rows_before(step));
    co_await session_.group.expect(gradient);
    if (staleness == 0) {
      const AnyStream total = co_await sum(std::move(gradient));
      apply(total);
    } else {
      session_.group.start_sum(std::move(gradient), row_);
      if (session_.group.in_flight() > staleness) {
        const AnyStream sum = co_await session_.group.finish_oldest();
        apply(sum);
      }
    }
    if (session_.saves || session_.is_stopping) co_await apply_pending();
    if (std::exchange(session_.saves, false)) session_.save(*this);
  }
  co_await apply_pending();
}

Task<AnyStream> Sgd::sum(AnyStream gradient) {
  if (!sends_lengths_) {
    AnyStream total = co_await session_.group.sum(std::move(gradient), row_);
    co_return total;
  }
  AnyStream lengths = AnyStream::phantom(ValueType::f32, gradient.dimension(), {0, gradient.dimension()},
                                         Layout::sparse, gradient.nnz());
  replicas_->contribute(session_.group.rank(), session_.group.size(), std::move(gradient));
  co_await session_.group.sum(std::move(lengths), row_);
  co_return replicas_->sum(session_.position.steps);
}

Task<> Sgd::apply_pending() {
  while (session_.group.in_flight() > 0) {
    const AnyStream sum = co_await session_.group.finish_oldest();
    apply(sum);
  }
}

std::uint64_t Sgd::rows_before(std::uint64_t step) const {
  return static_cast<std::uint64_t>(static_cast<unsigned __int128>(rows_) * step / steps_of_epoch_);
}

Task<AnyStream> Sgd::compute_gradient(std::uint64_t rows) {
  const std::exception_ptr damaged = failure_of([&] {
    if (!session_.failure) cursor_.next(rows, batch_);
  });
  if (damaged) session_.failure = damaged;
  if (session_.failure) batch_.clear();  // the others are told by the vote
  find_classes();
  double loss = 0;
  for (std::size_t vector = 0; vector < layout_.vectors; ++vector) {
    const double of_vector = co_await add_vector(vector);
    loss += of_vector;
    if (session_.group.in_flight() > 0) co_await session_.group.yield();
  }
  session_.group.charge(2 * batch_.nonzeros() * layout_.vectors);
  std::array<float, kTailValues> tail{};
  tail[kRows] = static_cast<float>(batch_.size());
  tail[kLoss] = static_cast<float>(loss);
  tail[kStop] = session_.votes_to_stop();
  tail[kSave] = session_.votes_to_save();
  batch_.clear();  // its blocks may be needed no more
  co_return gradient_.take(tail);
}

void Sgd::find_classes() {
  margins_.resize(batch_.size());
  coefficients_.resize(batch_.size());
  classes_.resize(batch_.size());
  for (std::size_t i = 0; i < batch_.size() && !session_.facts.labels.empty(); ++i) {
    classes_[i] = static_cast<std::uint32_t>(class_of(batch_.labels[i], session_.facts.labels));
  }
}

// The loss of the batch by margins_, and its slopes in coefficients_.
double Sgd::loss_of_vector(std::size_t vector) {
  const bool is_classifier = options_.loss != Loss::squares;
  const std::size_t positive = layout_.vectors == 1 ? 1 : vector;
  double loss = 0;
  visit_loss(options_.loss, [&]<class L>() {
    for (std::size_t i = 0; i < batch_.size(); ++i) {
      const double label = !is_classifier ? batch_.labels[i] : classes_[i] == positive ? 1 : -1;
      const double weight = is_classifier ? class_weights_[classes_[i]] : 1;
      loss += weight * L::value(margins_[i], label);
      coefficients_[i] = static_cast<float>(weight * L::slope(margins_[i], label));
    }
  });
  return loss;
}

// The gradient of one vector of weights: margins, then slopes, then slope·row. Gives the loss.
Task<double> Sgd::add_vector(std::size_t vector) {
  weights_.margins(batch_, vector, margins_, options_.threads);
  if (session_.group.in_flight() > 0) co_await session_.group.yield();
  const double loss = loss_of_vector(vector);
  const double slope_sum = std::accumulate(coefficients_.begin(), coefficients_.end(), 0.0);
  const std::uint64_t offset = vector * layout_.stride();
  gradient_.add_rows(batch_, coefficients_, offset, options_.threads);
  if (options_.intercept) gradient_.add(offset + layout_.features, static_cast<float>(slope_sum));
  co_return loss;
}

void Sgd::apply(const AnyStream& sum) {
  std::array<float, kTailValues> tail{};
  const auto values = sum.values_buffer().as<float>();
  if (sum.is_dense()) {
    std::copy_n(values.end() - kTailValues, +kTailValues, tail.begin());
  } else {
    const auto indices = sum.indices_buffer().as<std::uint32_t>();
    for (std::size_t i = indices.size(); i-- > 0 && indices[i] >= layout_.dimension();) {
      tail[indices[i] - layout_.dimension()] = values[i];
    }
  }
  Position& position = session_.position;
  const std::uint64_t moved = tail[kRows] > 0 ? replicas_->apply(position.steps, sum, rate(), tail[kRows]) : 0;
  position.loss_sum += tail[kLoss];
  position.rows += tail[kRows];
  position.steps += 1;
  position.step_of_epoch += 1;
  if (!std::isfinite(tail[kLoss])) session_.fail_as_diverged();
  if (tail[kStop] > 0) session_.is_stopping = true;
  if (tail[kSave] > 0) session_.saves = true;
  if (sum.is_dense() || sends_lengths_) session_.group.charge_dense(sum.dimension());
  session_.group.charge(moved);
  session_.tell_step(steps_of_epoch_);
}

double Sgd::rate() const {
  const Position& position = session_.position;
  const auto step = static_cast<double>(position.steps);
  switch (options_.schedule) {
    case Schedule::step: return options_.rate * std::pow(options_.decay, position.epoch);
    case Schedule::inverse: return options_.rate / (1 + options_.decay * step);
    case Schedule::inverse_square_root: return options_.rate / std::sqrt(1 + options_.decay * step);
    case Schedule::bold_driver: return position.rate;
    case Schedule::constant:
    case Schedule::adagrad: return options_.rate;
  }
  return options_.rate;
}

Task<double> Sgd::epoch_loss() {
  Position& position = session_.position;
  const double loss = position.loss_sum / position.rows;
  if (options_.schedule == Schedule::bold_driver) {
    position.rate *= loss <= position.previous_loss ? 1.05 : 0.5;
  } else {
    position.rate = rate();
  }
  position.previous_loss = loss;
  co_return loss;
}

Task<double> Sgd::loss() {
  double loss = 0;
  const std::exception_ptr damaged = failure_of([&] {
    data_.for_each_block([&](const Rows& rows) {
      batch_.clear();
      for (std::size_t row = 0; row < rows.size(); ++row) {
        batch_.rows.push_back(rows[row]);
        batch_.labels.push_back(rows.label(row));
      }
      find_classes();
      for (std::size_t vector = 0; vector < layout_.vectors; ++vector) {
        weights_.margins(batch_, vector, margins_, options_.threads);
        loss += loss_of_vector(vector);
      }
    });
  });
  batch_.clear();
  co_await session_.group.fail_together(damaged);
  const std::vector<double> mine{loss};
  const std::vector<double> sum = co_await session_.group.agree(mine);
  co_return sum[0] / session_.facts.rows;
}

std::shared_ptr<const Snapshot> Sgd::snapshot() {
  return replicas_->snapshot([&] {
    Snapshot snapshot{.model = session_.empty_model()};
    weights_.copy_to(snapshot.model.weights);
    std::copy(weights_.intercepts().begin(), weights_.intercepts().end(), snapshot.model.intercepts.begin());
    snapshot.penalty = snapshot.model.penalty(options_.penalty);
    return snapshot;
  });
}

}  // namespace

std::unique_ptr<Method> make_sgd(Session& session, Dataset& data, const Start& start,
                                 const std::optional<FeatureSums>& sums) {
  return std::make_unique<Sgd>(session, data, start, sums);
}

}  // namespace tulle::linear
