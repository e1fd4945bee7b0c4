// How it works. Every rank has all vectors v and its rows. An iteration multiplies them by the covariance,
// Σ (x − m)(x − m)ᵀ/n: for each row the projections p = (x − m)·v, then the sum of p·x, which an allreduce adds. Over
// all rows the p sum to zero, so that p·m need not be taken away, and sums stay as sparse as rows. The products, made
// orthogonal (Gram and Schmidt), are the next vectors, and their lengths the variances. With one component this is
// power iteration; with several, each converges in the complement of those before it.
#include "tulle/linear/pca.hpp"

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "linear/facts.hpp"
#include "linear/gradient_accumulator.hpp"
#include "linear/losses.hpp"
#include "tulle/base/philox.hpp"
#include "tulle/stream/reduction.hpp"

namespace tulle::linear {
namespace {

double dot_dense(std::span<const float> a, std::span<const float> b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += static_cast<double>(a[i]) * b[i];
  return sum;
}

class Pca {
 public:
  Pca(Group& group, Dataset& data, const PcaOptions& options, const Facts& facts)
      : group_(group),
        data_(data),
        options_(options),
        row_(group.row_of(options.aggregation)),
        rows_(facts.rows),
        products_(options.components * facts.features),
        mean_(facts.features) {
    result_.features = facts.features;
    result_.components.resize(options.components * facts.features);
    result_.variances.resize(options.components);
  }

  Task<PcaResult> run();

 private:
  std::span<float> vector(std::size_t i) {
    return std::span(result_.components).subspan(i * result_.features, result_.features);
  }
  void draw_vectors();
  Task<> compute_mean();
  Task<> multiply();
  void add_row(RowView row, std::span<const double> mean_projections);
  std::vector<double> orthogonalize();

  Group& group_;
  Dataset& data_;
  const PcaOptions& options_;
  std::string row_;
  double rows_;
  GradientAccumulator products_;
  std::vector<float> mean_;
  PcaResult result_;
};

Task<PcaResult> Pca::run() {
  if (options_.is_centered) co_await compute_mean();
  draw_vectors();
  orthogonalize();
  double change = std::numeric_limits<double>::max();
  while (result_.iterations < options_.iterations && change > options_.tolerance) {
    co_await multiply();
    const std::vector<double> variances = orthogonalize();
    change = 0;
    for (std::size_t i = 0; i < variances.size(); ++i) {
      change = std::max(change, std::abs(variances[i] - result_.variances[i]) / std::max(variances[0], 1e-300));
    }
    result_.variances = variances;
    result_.iterations += 1;
    if (group_.rank() == 0 && options_.on_iteration) options_.on_iteration(result_.iterations, variances);
  }
  co_return std::move(result_);
}

void Pca::draw_vectors() {
  Philox random(options_.seed);
  for (float& value : result_.components) value = static_cast<float>(random.uniform() - 0.5);
}

Task<> Pca::compute_mean() {
  const std::exception_ptr failure = failure_of([&] {
    data_.for_each_block([&](const Rows& rows) {
      for (std::size_t row = 0; row < rows.size(); ++row) {
        const RowView view = rows[row];
        for (std::size_t i = 0; i < view.indices.size(); ++i) products_.add(view.indices[i], view.value(i));
      }
    });
  });
  co_await group_.fail_together(failure);
  AnyStream sum = products_.take();
  sum = co_await group_.sum(std::move(sum), row_);
  const std::vector<float> sums = Stream<float>(sum).to_vector();
  for (std::size_t i = 0; i < mean_.size(); ++i) mean_[i] = static_cast<float>(sums[i] / rows_);
}

void Pca::add_row(RowView row, std::span<const double> mean_projections) {
  for (std::size_t v = 0; v < options_.components; ++v) {
    const double projection = dot(row, vector(v).data()) - mean_projections[v];
    const std::uint64_t first = v * result_.features;
    for (std::size_t i = 0; i < row.indices.size(); ++i) {
      products_.add(first + row.indices[i], static_cast<float>(projection * row.value(i)));
    }
  }
}

Task<> Pca::multiply() {
  std::vector<double> mean_projections;
  for (std::size_t v = 0; v < options_.components; ++v) mean_projections.push_back(dot_dense(vector(v), mean_));
  std::uint64_t pairs = 0;
  const std::exception_ptr failure = failure_of([&] {
    data_.for_each_block([&](const Rows& rows) {
      for (std::size_t row = 0; row < rows.size(); ++row) add_row(rows[row], mean_projections);
      pairs += rows.nonzeros();
    });
  });
  co_await group_.fail_together(failure);
  group_.charge(2 * pairs * options_.components);
  AnyStream product = products_.take();
  product = co_await group_.sum(std::move(product), row_);
  std::fill(result_.components.begin(), result_.components.end(), 0.0f);
  const auto values = product.values_buffer().as<float>();
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::uint64_t place = product.is_dense() ? i : product.indices_buffer().as<std::uint32_t>()[i];
    result_.components[place] = static_cast<float>(values[i] / rows_);
  }
}

// Makes the vectors orthonormal and gives the lengths they had.
std::vector<double> Pca::orthogonalize() {
  std::vector<double> lengths;
  for (std::size_t v = 0; v < options_.components; ++v) {
    for (int pass = 0; pass < 2; ++pass) {  // the second takes away what rounding left of the first
      for (std::size_t earlier = 0; earlier < v; ++earlier) {
        const double overlap = dot_dense(vector(v), vector(earlier));
        for (std::size_t i = 0; i < mean_.size(); ++i) vector(v)[i] -= static_cast<float>(overlap * vector(earlier)[i]);
      }
    }
    lengths.push_back(std::sqrt(dot_dense(vector(v), vector(v))));
    if (lengths.back() == 0) continue;
    for (float& value : vector(v)) value = static_cast<float>(value / lengths.back());
  }
  return lengths;
}

std::vector<Setting> settings_of(const PcaOptions& options) {
  return {{"components", fmt::format("{}", options.components)},
          {"iterations", fmt::format("{}", options.iterations)},
          {"tolerance", fmt::format("{}", options.tolerance)},
          {"centering", fmt::format("{}", options.is_centered)},
          {"aggregation", options.aggregation},
          {"seed", fmt::format("{}", options.seed)}};
}

}  // namespace

Task<PcaResult> pca_task(Communicator communicator, Dataset& data, PcaOptions options) {
  Group group(std::move(communicator));
  std::vector<Setting> settings = settings_of(options);
  co_await group.require_same(std::move(settings));
  const Facts facts = co_await gather_facts(group, data, Loss::squares, false);
  if (options.components < 1 || options.components > facts.features ||
      options.components * facts.features > kMaxFeatures) {
    throw Error(ErrorKind::bad_input,
                fmt::format("components must be 1 to the {} features, and at most {}", facts.features,
                            kMaxFeatures / std::max<std::uint64_t>(1, facts.features)));
  }
  // The mean, and components with their products here and from all ranks.
  co_await require_memory_for(group, facts, sizeof(float) + options.components * (3 * sizeof(float) + 1));
  Pca run(group, data, options, facts);
  PcaResult result = co_await run.run();
  co_return result;
}

PcaResult pca(Communicator& communicator, Dataset& data, const PcaOptions& options) {
  return run_task(communicator, pca_task(communicator, data, options));
}

}  // namespace tulle::linear
