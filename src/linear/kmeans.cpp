// How it works. Every rank has all centers and its rows. In an iteration it finds the nearest center of each row, by
// ‖c‖² − 2·x·c, and adds the row to the sum of that cluster, a place for every cluster and feature. An allreduce of the
// sums, which are sparse as rows are, gives all ranks the new centers. The centers start as rows, each drawn with a
// chance that grows with the squared distance to those before it; the rank that has the row tells it.
#include "tulle/linear/kmeans.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "linear/facts.hpp"
#include "linear/gradient_accumulator.hpp"
#include "linear/losses.hpp"
#include "tulle/base/philox.hpp"

namespace tulle::linear {
namespace {

double squared_length(RowView row) {
  double sum = 0;
  for (std::size_t i = 0; i < row.indices.size(); ++i) sum += static_cast<double>(row.value(i)) * row.value(i);
  return sum;
}

class Kmeans {
 public:
  Kmeans(Group& group, Dataset& data, const KmeansOptions& options, std::uint64_t features)
      : group_(group),
        data_(data),
        options_(options),
        row_(group.row_of(options.aggregation)),
        sums_(options.clusters * features),
        squared_lengths_(options.clusters) {
    result_.features = features;
    result_.centers.resize(options.clusters * features);
    result_.sizes.resize(options.clusters);
  }

  Task<KmeansResult> run();

 private:
  Task<> choose_centers();
  Task<std::pair<int, double>> draw_rank(double total, Philox& random);
  void add_drawn_row(double remaining);
  void update_distances(std::uint32_t cluster);
  Task<double> iterate();
  std::pair<std::uint32_t, double> nearest(RowView row) const;
  void set_centers(const AnyStream& sums, std::span<const double> sizes);

  // What goes wrong is told by tell_failure(), before the ranks meet again.
  template <class Function>
  void for_each_row(Function function) {
    const std::exception_ptr failure = failure_of([&] {
      std::size_t number = 0;
      data_.for_each_block([&](const Rows& rows) {
        for (std::size_t row = 0; row < rows.size(); ++row) function(rows[row], number++);
      });
    });
    if (failure) failure_ = failure;
  }
  Task<> tell_failure() { co_await group_.fail_together(failure_); }
  const float* center(std::uint32_t cluster) const { return result_.centers.data() + cluster * result_.features; }

  Group& group_;
  Dataset& data_;
  const KmeansOptions& options_;
  std::string row_;
  GradientAccumulator sums_;
  std::vector<double> squared_lengths_, distances_;
  std::exception_ptr failure_;
  KmeansResult result_;
};

Task<KmeansResult> Kmeans::run() {
  co_await choose_centers();
  double previous = std::numeric_limits<double>::max();
  for (int iteration = 0; iteration < options_.iterations; ++iteration) {
    const double inertia = co_await iterate();
    result_.inertias.push_back(inertia);
    if (group_.rank() == 0 && options_.on_iteration) options_.on_iteration(iteration + 1, inertia);
    if (inertia >= previous * (1 - options_.tolerance)) break;
    previous = inertia;
  }
  co_return std::move(result_);
}

Task<> Kmeans::choose_centers() {
  Philox random(options_.seed);
  distances_.assign(data_.rows(), 1.0);  // the first center: any row
  for (std::uint32_t cluster = 0; cluster < options_.clusters; ++cluster) {
    const double mine = std::accumulate(distances_.begin(), distances_.end(), 0.0);
    const auto [rank, remaining] = co_await draw_rank(mine, random);
    if (rank == group_.rank()) add_drawn_row(remaining);
    AnyStream row = sums_.take();
    co_await tell_failure();
    row = co_await group_.sum(std::move(row), "ssar_recursive_double");
    row = to_sparse(row, Op::sum());  // a short row may have become dense
    const auto indices = row.indices_buffer().as<std::uint32_t>();
    for (std::size_t i = 0; i < indices.size(); ++i) {
      result_.centers[cluster * result_.features + indices[i]] = row.values_buffer().as<float>()[i];
    }
    update_distances(cluster);
  }
}

// Which rank has the drawn row, and how far into its distances it lies. The same on all ranks but for the second.
Task<std::pair<int, double>> Kmeans::draw_rank(double total, Philox& random) {
  std::vector<double> totals(static_cast<std::size_t>(group_.size()));
  totals[static_cast<std::size_t>(group_.rank())] = total;
  co_await tell_failure();
  totals = co_await group_.agree(totals);
  double drawn = random.uniform() * std::accumulate(totals.begin(), totals.end(), 0.0);
  for (std::size_t rank = 0; rank < totals.size(); ++rank) {
    const bool is_last = std::all_of(totals.begin() + static_cast<std::ptrdiff_t>(rank) + 1, totals.end(),
                                     [](double each) { return each == 0; });
    if (drawn < totals[rank] || is_last) co_return std::pair(static_cast<int>(rank), drawn);
    drawn -= totals[rank];
  }
  co_return std::pair(0, 0.0);
}

void Kmeans::add_drawn_row(double remaining) {
  bool is_found = false;
  for_each_row([&](RowView row, std::size_t number) {
    if (is_found) return;
    remaining -= distances_[number];
    is_found = remaining < 0 || number + 1 == distances_.size();
    for (std::size_t i = 0; is_found && i < row.indices.size(); ++i) sums_.add(row.indices[i], row.value(i));
  });
}

void Kmeans::update_distances(std::uint32_t cluster) {
  double& length = squared_lengths_[cluster];
  length = 0;
  for (std::uint64_t i = 0; i < result_.features; ++i)
    length += static_cast<double>(center(cluster)[i]) * center(cluster)[i];
  for_each_row([&](RowView row, std::size_t number) {
    const double distance = std::max(0.0, squared_length(row) + length - 2 * dot(row, center(cluster)));
    distances_[number] = cluster == 0 ? distance : std::min(distances_[number], distance);
  });
}

std::pair<std::uint32_t, double> Kmeans::nearest(RowView row) const {
  std::pair<std::uint32_t, double> best{0, std::numeric_limits<double>::max()};
  for (std::uint32_t cluster = 0; cluster < options_.clusters; ++cluster) {
    const double distance = squared_lengths_[cluster] - 2 * dot(row, center(cluster));
    if (distance < best.second) best = {cluster, distance};
  }
  return best;
}

Task<double> Kmeans::iterate() {
  std::vector<double> tally(options_.clusters + 1);  // sizes, then inertia
  std::uint64_t pairs = 0;
  for_each_row([&](RowView row, std::size_t) {
    const auto [cluster, distance] = nearest(row);
    tally[cluster] += 1;
    tally.back() += std::max(0.0, distance + squared_length(row));
    for (std::size_t i = 0; i < row.indices.size(); ++i)
      sums_.add(cluster * result_.features + row.indices[i], row.value(i));
    pairs += row.indices.size();
  });
  group_.charge(pairs * options_.clusters);
  AnyStream sums = sums_.take();
  co_await tell_failure();
  sums = co_await group_.sum(std::move(sums), row_);
  tally = co_await group_.agree(tally);
  set_centers(sums, std::span(tally).first(options_.clusters));
  co_return tally.back();
}

void Kmeans::set_centers(const AnyStream& sums, std::span<const double> sizes) {
  for (std::uint32_t cluster = 0; cluster < options_.clusters; ++cluster) {
    if (sizes[cluster] == 0) continue;
    const auto first = result_.centers.begin() + static_cast<std::ptrdiff_t>(cluster * result_.features);
    std::fill_n(first, result_.features, 0.0f);
    squared_lengths_[cluster] = 0;
  }
  const auto values = sums.values_buffer().as<float>();
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::uint64_t place = sums.is_dense() ? i : sums.indices_buffer().as<std::uint32_t>()[i];
    const std::uint64_t cluster = place / result_.features;
    if (values[i] == 0) continue;
    result_.centers[place] = static_cast<float>(values[i] / sizes[cluster]);
    squared_lengths_[cluster] += static_cast<double>(result_.centers[place]) * result_.centers[place];
  }
  result_.sizes.assign(sizes.begin(), sizes.end());
}

std::vector<Setting> settings_of(const KmeansOptions& options) {
  return {{"clusters", fmt::format("{}", options.clusters)},
          {"iterations", fmt::format("{}", options.iterations)},
          {"tolerance", fmt::format("{}", options.tolerance)},
          {"aggregation", options.aggregation},
          {"seed", fmt::format("{}", options.seed)}};
}

}  // namespace

Task<KmeansResult> kmeans_task(Communicator communicator, Dataset& data, KmeansOptions options) {
  Group group(std::move(communicator));
  std::vector<Setting> settings = settings_of(options);
  co_await group.require_same(std::move(settings));
  const Facts facts = co_await gather_facts(group, data, Loss::squares, false);
  if (options.clusters < 1 || options.clusters > facts.rows || options.clusters * facts.features > kMaxFeatures) {
    throw Error(ErrorKind::bad_input,
                fmt::format("clusters must be 1 to the number of rows, and at most {} with {} features",
                            kMaxFeatures / std::max<std::uint64_t>(1, facts.features), facts.features));
  }
  // Centers, their sums here and from all ranks.
  co_await require_memory_for(group, facts, options.clusters * (3 * sizeof(float) + 1));
  Kmeans run(group, data, options, facts.features);
  KmeansResult result = co_await run.run();
  co_return result;
}

KmeansResult kmeans(Communicator& communicator, Dataset& data, const KmeansOptions& options) {
  return run_task(communicator, kmeans_task(communicator, data, options));
}

}  // namespace tulle::linear
