// How it works. Every rank has the data by columns and the margins of all rows, and owns a *slice* of the coordinates.
// In an *iteration* it takes the next k of its slice, in random order, and moves each (coordinate_step.hpp). Its own
// margins follow at once, so that its coordinates do not get in each other's way. Then an allgather gives everyone all
// (place, change) pairs, and each rank adds the others' columns to its margins: at once, or, with a staleness of τ,
// when τ more iterations have begun. An epoch visits every coordinate once.
//
// Ranks that move coordinates of the same row at the same time would overshoot. So each counts its own changes of a
// margin as often as ranks *overlap* in the row, in the steps and in the margins that they leave, until everyone's
// changes of the iteration are there (CoCoA+, Ma et al. 2015, with its σ' for each row). If n ranks change a margin m
// by d₁ … dₙ, a convex loss has f(m + Σ dᵢ) ≤ (Σ f(m + n·dᵢ))/n, so what every rank lowers by itself is lowered in sum.
// Ranks that take few of their coordinates rarely meet: a rank's overlap in a row is 1 + the sum of the chances that
// each other rank moves a coordinate of the row before it is heard of. Then the bound holds on average over the orders.
//
// Columns that say different things need less: where ranks meet, their changes often cancel. So where ranks meet often,
// everybody measures by how much the changes of an iteration point the same way (Coordinates::alignment()): with n
// ranks that are equal it is n, and 1 if they have nothing in common. It takes the place of the overlaps in the next
// iteration, with some room. If it turns out to be larger then, everybody takes only so much of all changes that the
// bound holds.
//
// An intercept is a column of ones; its owner moves it as often as it takes to cost as much as the features do.
#include "linear/scd.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "linear/change_blocks.hpp"
#include "linear/coordinates.hpp"
#include "tulle/base/philox.hpp"

namespace tulle::linear {
namespace {

class Scd final : public Method {
 public:
  Scd(Session& session, Dataset& data, const Start& start);

  Task<> run_epoch() override;
  Task<double> epoch_loss() override { return loss(); }
  Task<double> loss() override;
  std::shared_ptr<const Snapshot> snapshot() override;
  std::string row() const override { return row_; }
  std::vector<std::span<std::byte>> state() override {
    auto state = coordinates_.state();
    state.push_back(std::as_writable_bytes(std::span(&learned_, 1)));
    return state;
  }
  void restored() override { coordinates_.restored(); }

 private:
  std::size_t slice_begin(int rank) const;
  std::vector<std::uint64_t> cuts() const;
  PoolVector<float> overlaps() const;
  Task<> decide_what_to_measure();
  double share_of(const AnyStream& gathered, double overlap);
  void shuffle_slice();
  void move_coordinates(std::uint64_t iteration);
  void move_intercepts();
  void move(std::uint64_t place, float amount);
  AnyStream take_changes();
  Task<AnyStream> exchange(AnyStream block);
  void start_exchange(AnyStream block);
  void apply(const AnyStream& gathered);
  Task<> apply_pending();

  Session& session_;
  const TrainOptions& options_;
  Coordinates coordinates_;
  ChangeBlocks blocks_;
  OperationKind kind_;
  std::string row_;
  std::uint64_t coordinates_of_iteration_, iterations_of_epoch_, intercept_period_;
  PoolVector<std::uint32_t> order_;
  PoolVector<Change> changes_;                           // of this iteration, by this rank
  PoolDeque<PoolVector<Coordinates::Ahead>> unsettled_;  // of this iteration and earlier ones
  double mean_overlap_ = 1;
  bool has_decided_ = false, is_measuring_ = false;  // equal on all ranks, as is the next
  struct Learned {
    double alignment = 0;  // 0: not measured yet
  } learned_;
  PoolVector<RankChange> all_changes_;
};

// Ranks of few coordinates hear from each other at least so often in an epoch, unless options say otherwise.
constexpr std::uint64_t kIterations = 32;
constexpr std::uint64_t kMostCoordinates = 100;
// Where ranks overlap more than this on average, alignments are measured. Of what they were this share stays, and they
// are taken so many times as large.
constexpr double kRarely = 1.25;
constexpr double kMemory = 0.7;
constexpr double kRoom = 1.25;

// The paper's way is an allgather; a row of allreduce does as well.
OperationKind kind_of(std::string_view aggregation) {
  const bool is_allreduce = std::any_of(registry().begin(), registry().end(), [&](const Algorithm& row) {
    return row.kind == OperationKind::allreduce && row.name == aggregation;
  });
  return is_allreduce ? OperationKind::allreduce : OperationKind::allgather;
}

Scd::Scd(Session& session, Dataset& data, const Start& start)
    : session_(session),
      options_(session.options),
      coordinates_(data, session.facts, options_, start.intercepts),
      blocks_(cuts()),
      kind_(kind_of(options_.aggregation)),
      row_(session.group.row_of(options_.aggregation, kind_)) {
  const auto ranks = static_cast<std::uint64_t>(session.group.size());
  const std::uint64_t largest_slice = (coordinates_.size() + ranks - 1) / ranks;
  coordinates_of_iteration_ = options_.coordinates > 0
                                  ? options_.coordinates
                                  : std::clamp<std::uint64_t>(largest_slice / kIterations, 1, kMostCoordinates);
  iterations_of_epoch_ =
      std::max<std::uint64_t>(1, (largest_slice + coordinates_of_iteration_ - 1) / coordinates_of_iteration_);
  const Columns& columns = coordinates_.columns();
  const std::uint64_t nonzeros_of_iteration = coordinates_.vectors() * columns.nonzeros() / iterations_of_epoch_;
  intercept_period_ = std::max<std::uint64_t>(1, columns.rows() / std::max<std::uint64_t>(1, nonzeros_of_iteration));
  if (options_.damping > 0) coordinates_.set_overlap(options_.damping);
  if (ranks == 1 || options_.damping > 0) return;
  coordinates_.set_overlaps(overlaps());
  mean_overlap_ = coordinates_.mean_overlap(slice_begin(session.group.rank()), slice_begin(session.group.rank() + 1));
}

std::size_t Scd::slice_begin(int rank) const {
  return coordinates_.size() * static_cast<std::size_t>(rank) / static_cast<std::size_t>(session_.group.size());
}

std::vector<std::uint64_t> Scd::cuts() const {
  std::vector<std::uint64_t> cuts{0};
  for (int rank = 1; rank <= session_.group.size(); ++rank) cuts.push_back(coordinates_.place_of(slice_begin(rank)));
  return cuts;
}

// With a staleness of τ, others have moved up to (τ + 1)·k coordinates of which this rank does not know yet.
PoolVector<float> Scd::overlaps() const {
  const Columns& columns = coordinates_.columns();
  const std::size_t margins = coordinates_.vectors() * columns.rows();
  PoolVector<float> overlaps(margins, 1.0f);
  PoolVector<std::uint32_t> counts(margins);  // coordinates of the row that one rank owns
  const double unseen = 1 + options_.staleness;
  for (int rank = 0; rank < session_.group.size(); ++rank) {
    if (rank == session_.group.rank()) continue;
    const std::size_t begin = slice_begin(rank), end = slice_begin(rank + 1);
    const double share = std::min(1.0, unseen * static_cast<double>(coordinates_of_iteration_) /
                                           static_cast<double>(std::max<std::size_t>(1, end - begin)));
    const auto for_each_margin = [&](auto visit) {
      for (std::size_t coordinate = begin; coordinate < end; ++coordinate) {
        const std::size_t first = coordinate / columns.size() * columns.rows();
        for (const std::uint32_t row : columns[coordinate % columns.size()].rows) visit(first + row);
      }
    };
    for_each_margin([&](std::size_t margin) { counts[margin] += 1; });
    for_each_margin([&](std::size_t margin) {
      if (counts[margin] > 0) overlaps[margin] += static_cast<float>(1 - std::pow(1 - share, counts[margin]));
      counts[margin] = 0;
    });
    if (!options_.intercept) continue;
    const double moves = std::min(1.0, unseen / static_cast<double>(intercept_period_));
    for (std::size_t vector = 0; vector < coordinates_.vectors(); ++vector) {
      if (!blocks_.owns(rank, coordinates_.intercept_place(vector))) continue;
      for (std::size_t row = 0; row < columns.rows(); ++row)
        overlaps[vector * columns.rows() + row] += static_cast<float>(moves);
    }
  }
  const float ranks = static_cast<float>(session_.group.size());
  for (float& overlap : overlaps) overlap = std::min(overlap, ranks);
  return overlaps;
}

// Where ranks rarely meet, overlaps cost little and measures would cost more. With staleness changes are not heard of
// in time to take less of them.
Task<> Scd::decide_what_to_measure() {
  const bool has_overlaps = session_.group.size() > 1 && options_.damping == 0;
  if (std::exchange(has_decided_, true) || !has_overlaps || options_.staleness > 0) co_return;
  const std::vector<double> mine{mean_overlap_};
  const std::vector<double> most = co_await session_.group.agree(mine, Op::max());
  is_measuring_ = most[0] > kRarely;
  const double ranks = session_.group.size(), known = learned_.alignment > 0 ? kRoom * learned_.alignment : ranks;
  if (is_measuring_) coordinates_.set_overlap(std::min(ranks, known));
}

// How much of the changes is taken, which were made with `overlap`; sets that of the next iteration. What was measured
// is forgotten slowly, because single iterations differ.
double Scd::share_of(const AnyStream& gathered, double overlap) {
  all_changes_.clear();
  blocks_.read(
      gathered,
      [&](int rank, std::uint64_t place, float amount) {
        all_changes_.push_back({rank, place, amount});
      },
      [](Vote) {});
  if (all_changes_.empty()) return 1;
  const double alignment = coordinates_.alignment(all_changes_), ranks = session_.group.size();
  learned_.alignment = std::max(alignment, 1 + kMemory * (learned_.alignment - 1));
  coordinates_.set_overlap(std::min(ranks, kRoom * learned_.alignment));
  session_.group.charge(3 * all_changes_.size() * coordinates_.columns().nonzeros() /
                        std::max<std::size_t>(1, coordinates_.columns().size()));
  return std::min(1.0, overlap / std::min(ranks, kRoom * alignment));
}

void Scd::shuffle_slice() {
  const std::size_t begin = slice_begin(session_.group.rank()), end = slice_begin(session_.group.rank() + 1);
  order_.resize(end - begin);
  std::iota(order_.begin(), order_.end(), static_cast<std::uint32_t>(begin));
  Philox random(options_.seed, static_cast<std::uint64_t>(session_.position.epoch) << 32 |
                                   static_cast<std::uint64_t>(session_.group.rank()));
  for (std::size_t i = order_.size(); i > 1; --i) std::swap(order_[i - 1], order_[random.below(i)]);
}

Task<> Scd::run_epoch() {
  Position& position = session_.position;
  const auto staleness = static_cast<std::size_t>(options_.staleness);
  co_await decide_what_to_measure();
  shuffle_slice();
  for (std::uint64_t i = position.step_of_epoch; i < iterations_of_epoch_ && !session_.is_stopping; ++i) {
    changes_.clear();
    unsettled_.emplace_back();
    move_coordinates(i);
    if (options_.intercept && i % intercept_period_ == 0) move_intercepts();
    AnyStream block = take_changes();
    if (staleness == 0) {
      const AnyStream gathered = co_await exchange(std::move(block));
      apply(gathered);
    } else {
      start_exchange(std::move(block));
      if (session_.group.in_flight() > staleness) {
        const AnyStream gathered = co_await session_.group.finish_oldest();
        apply(gathered);
      }
    }
    if (session_.saves || session_.is_stopping) co_await apply_pending();
    if (std::exchange(session_.saves, false)) session_.save(*this);
  }
  co_await apply_pending();
}

Task<> Scd::apply_pending() {
  while (session_.group.in_flight() > 0) {
    const AnyStream gathered = co_await session_.group.finish_oldest();
    apply(gathered);
  }
}

void Scd::move_coordinates(std::uint64_t iteration) {
  const std::size_t first = std::min<std::size_t>(iteration * coordinates_of_iteration_, order_.size());
  const std::size_t last = std::min<std::size_t>(first + coordinates_of_iteration_, order_.size());
  std::uint64_t pairs = 0;
  for (std::size_t i = first; i < last; ++i) {
    move(coordinates_.place_of(order_[i]), coordinates_.step_of(order_[i]));
    pairs += coordinates_.nonzeros_of(order_[i]);
  }
  session_.group.charge(2 * pairs);
}

void Scd::move_intercepts() {
  for (std::size_t vector = 0; vector < coordinates_.vectors(); ++vector) {
    const std::uint64_t place = coordinates_.intercept_place(vector);
    if (blocks_.owns(session_.group.rank(), place)) move(place, coordinates_.intercept_step_of(vector));
  }
}

void Scd::move(std::uint64_t place, float amount) {
  if (amount == 0) return;
  changes_.push_back({place, amount});
  unsettled_.back().push_back(coordinates_.change_ahead(place, amount));
}

AnyStream Scd::take_changes() {
  std::sort(changes_.begin(), changes_.end(), [](const Change& a, const Change& b) { return a.place < b.place; });
  const Votes votes{session_.votes_to_stop(), session_.votes_to_save()};
  AnyStream block = blocks_.as_sparse(session_.group.rank(), changes_, votes);
  if (kind_ == OperationKind::allgather) return block;
  const Range whole{0, blocks_.dimension()};
  return AnyStream::sparse(ValueType::f32, whole.end, whole, block.indices_buffer(), block.values_buffer());
}

Task<AnyStream> Scd::exchange(AnyStream block) {
  if (kind_ == OperationKind::allgather) return session_.group.gather(std::move(block), row_);
  return session_.group.sum(std::move(block), row_);
}

void Scd::start_exchange(AnyStream block) {
  if (kind_ == OperationKind::allgather) return session_.group.start_gather(std::move(block), row_);
  session_.group.start_sum(std::move(block), row_);
}

// Everyone's changes but this rank's own, which are applied already, and ahead of the others'.
void Scd::apply(const AnyStream& gathered) {
  std::uint64_t columns = 0;
  const double share = is_measuring_ ? share_of(gathered, coordinates_.overlap()) : 1;
  const auto taken = [&](float amount) { return static_cast<float>(share * amount); };
  for (const Coordinates::Ahead& own : unsettled_.front()) coordinates_.settle(own, taken(own.amount));
  if (coordinates_.has_overlaps()) columns += unsettled_.front().size();
  unsettled_.pop_front();
  const auto change = [&](int rank, std::uint64_t place, float amount) {
    if (rank == session_.group.rank()) return;
    coordinates_.change(place, taken(amount));
    columns += 1;
  };
  const auto vote = [&](Vote cast) {
    if (cast == kStopVote) session_.is_stopping = true;
    if (cast == kSaveVote) session_.saves = true;
  };
  blocks_.read(gathered, change, vote);
  const std::size_t all = std::max<std::size_t>(1, coordinates_.columns().size());
  session_.group.charge(columns * coordinates_.columns().nonzeros() / all);
  session_.position.steps += 1;
  session_.position.step_of_epoch += 1;
  session_.tell_step(iterations_of_epoch_);
}

// Every rank could compute all of it; each does its share, and the sum is the same everywhere.
Task<double> Scd::loss() {
  const std::size_t rows = coordinates_.columns().rows();
  const auto ranks = static_cast<std::size_t>(session_.group.size()),
             rank = static_cast<std::size_t>(session_.group.rank());
  const std::vector<double> mine{coordinates_.loss(rows * rank / ranks, rows * (rank + 1) / ranks)};
  const std::vector<double> sum = co_await session_.group.agree(mine);
  co_return sum[0] / static_cast<double>(rows);
}

std::shared_ptr<const Snapshot> Scd::snapshot() {
  Snapshot snapshot{.model = session_.empty_model()};
  coordinates_.copy_to(snapshot.model);
  snapshot.penalty = snapshot.model.penalty(options_.penalty);
  return std::make_shared<const Snapshot>(std::move(snapshot));
}

}  // namespace

std::unique_ptr<Method> make_scd(Session& session, Dataset& data, const Start& start) {
  return std::make_unique<Scd>(session, data, start);
}

}  // namespace tulle::linear
