// How it works. Every rank has the data by columns and the margins of all rows, and owns a *slice* of the coordinates.
// In an *iteration* it takes the next k of its slice, in random order, and moves each (coordinate_step.hpp). Its own
// margins follow at once, so that its coordinates do not get in each other's way. Then an allgather gives everyone all
// (place, change) pairs, and each rank adds the others' columns to its margins: at once, or, with a staleness of τ,
// when τ more iterations have begun. An epoch visits every coordinate once.
//
// Ranks that move coordinates of the same row at the same time overshoot, so curvatures are multiplied by a *damping*:
// at most P, when every row has features of every rank's k, and near 1 when rows have few of them (Richtárik and Takáč
// 2016). An intercept is a column of ones; its owner moves it as often as it takes to cost as much as the features do.
#include "linear/scd.hpp"

#include <algorithm>
#include <numeric>

#include "linear/change_blocks.hpp"
#include "linear/coordinates.hpp"
#include "tulle/base/philox.hpp"

namespace tulle::linear {
namespace {

class Scd final : public Method {
 public:
  Scd(Session& session, Dataset& data);

  Task<> run_epoch() override;
  Task<double> epoch_loss() override;
  std::shared_ptr<const Snapshot> snapshot() override;
  std::string row() const override { return row_; }
  std::vector<std::span<std::byte>> state() override { return coordinates_.state(); }
  void restored() override { coordinates_.restored(); }

 private:
  std::size_t slice_begin(int rank) const;
  std::vector<std::uint64_t> cuts() const;
  double damping() const;
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
  double damping_;
  std::uint64_t iterations_of_epoch_, intercept_period_;
  PoolVector<std::uint32_t> order_;
  PoolVector<Change> changes_;  // of this iteration, by this rank
};

// The paper's way is an allgather; a row of allreduce does as well.
OperationKind kind_of(std::string_view aggregation) {
  const bool is_allreduce = std::any_of(registry().begin(), registry().end(), [&](const Algorithm& row) {
    return row.kind == OperationKind::allreduce && row.name == aggregation;
  });
  return is_allreduce ? OperationKind::allreduce : OperationKind::allgather;
}

Scd::Scd(Session& session, Dataset& data)
    : session_(session),
      options_(session.options),
      coordinates_(data, session.facts, options_),
      blocks_(cuts()),
      kind_(kind_of(options_.aggregation)),
      row_(session.group.row_of(options_.aggregation, kind_)),
      damping_(options_.damping > 0 ? options_.damping : damping()) {
  const auto ranks = static_cast<std::uint64_t>(session.group.size());
  const std::uint64_t largest_slice = (coordinates_.size() + ranks - 1) / ranks;
  iterations_of_epoch_ = std::max<std::uint64_t>(1, (largest_slice + options_.coordinates - 1) / options_.coordinates);
  const Columns& columns = coordinates_.columns();
  const std::uint64_t nonzeros_of_iteration = coordinates_.vectors() * columns.nonzeros() / iterations_of_epoch_;
  intercept_period_ = std::max<std::uint64_t>(1, columns.rows() / std::max<std::uint64_t>(1, nonzeros_of_iteration));
}

std::size_t Scd::slice_begin(int rank) const {
  return coordinates_.size() * static_cast<std::size_t>(rank) / static_cast<std::size_t>(session_.group.size());
}

std::vector<std::uint64_t> Scd::cuts() const {
  std::vector<std::uint64_t> cuts{0};
  for (int rank = 1; rank <= session_.group.size(); ++rank) cuts.push_back(coordinates_.place_of(slice_begin(rank)));
  return cuts;
}

// 1 + (P − 1)·(the chance that another rank's k meet a given row, at most 1). With a staleness of τ they are (τ + 1)·k
// of which this rank does not know yet.
double Scd::damping() const {
  const int ranks = session_.group.size(), rank = session_.group.rank();
  const Columns& columns = coordinates_.columns();
  const std::size_t slice = slice_begin(rank + 1) - slice_begin(rank);
  const std::size_t unseen = options_.coordinates * (1 + static_cast<std::size_t>(options_.staleness));
  const double share = static_cast<double>(std::min<std::size_t>(unseen, slice + 1)) /
                       static_cast<double>(std::max<std::size_t>(1, columns.size() / static_cast<std::size_t>(ranks)));
  const double met = static_cast<double>(columns.longest_row()) / ranks * share;
  return 1 + (ranks - 1) * std::min(1.0, met);
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
  shuffle_slice();
  for (std::uint64_t i = position.step_of_epoch; i < iterations_of_epoch_ && !session_.is_stopping; ++i) {
    changes_.clear();
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
  const std::size_t first = std::min<std::size_t>(iteration * options_.coordinates, order_.size());
  const std::size_t last = std::min<std::size_t>(first + options_.coordinates, order_.size());
  std::uint64_t pairs = 0;
  for (std::size_t i = first; i < last; ++i) {
    move(coordinates_.place_of(order_[i]), coordinates_.step_of(order_[i], damping_));
    pairs += coordinates_.nonzeros_of(order_[i]);
  }
  session_.group.charge(2 * pairs);
}

void Scd::move_intercepts() {
  for (std::size_t vector = 0; vector < coordinates_.vectors(); ++vector) {
    const std::uint64_t place = coordinates_.intercept_place(vector);
    if (blocks_.owns(session_.group.rank(), place)) move(place, coordinates_.intercept_step_of(vector, damping_));
  }
}

void Scd::move(std::uint64_t place, float amount) {
  if (amount == 0) return;
  changes_.push_back({place, amount});
  coordinates_.change(place, amount);
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

// Everyone's changes but this rank's own, which are applied already.
void Scd::apply(const AnyStream& gathered) {
  std::uint64_t columns = 0;
  const auto change = [&](int rank, std::uint64_t place, float amount) {
    if (rank == session_.group.rank()) return;
    coordinates_.change(place, amount);
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
Task<double> Scd::epoch_loss() {
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

std::unique_ptr<Method> make_scd(Session& session, Dataset& data) { return std::make_unique<Scd>(session, data); }

}  // namespace tulle::linear
