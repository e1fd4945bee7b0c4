// Whatever validate() accepts stays bounded: what is kept back after many steps is not far from what the same recipe
// keeps whose values travel as they are. Selectors, codings and rows come from their tables, so that a new one is tried
// by being there.
#include <algorithm>
#include <cmath>
#include <ostream>
#include <utility>

#include "gradient/training.hpp"
#include "tulle/base/error.hpp"
#include "tulle/codec/registry.hpp"
#include "tulle/collectives/registry.hpp"
#include "tulle/select/selector.hpp"

namespace tulle::gradient {
namespace {

using namespace testing;

// So many of a bucket are selected that qsgd's noise is larger than they are: from the levels' square on.
constexpr std::uint64_t kValues = 600;
constexpr double kDensity = 0.4;
constexpr std::uint64_t kSteps = 200;

template <class T, class Set>
void vary(std::vector<ValueCodec>& codecs, const ValueCodecRow& row, std::string_view option,
          std::initializer_list<T> values, Set set) {
  if (row.options.find(option) == row.options.npos) return;
  const std::vector<ValueCodec> before = std::exchange(codecs, {});
  for (const ValueCodec& codec : before) {
    for (const T value : values) set(codecs.emplace_back(codec), value);
  }
}

/// The coding with those of its options that say how much it loses.
std::vector<ValueCodec> variants_of(const ValueCodecRow& row) {
  std::vector<ValueCodec> codecs{{.coding = row.coding}};
  vary(codecs, row, "bits", {2, 4, 8}, [](ValueCodec& codec, int bits) { codec.bits = bits; });
  vary(codecs, row, "norm", {ScaleNorm::l2, ScaleNorm::max},
       [](ValueCodec& codec, ScaleNorm norm) { codec.norm = norm; });
  vary(codecs, row, "s", {1.0, 1.5, 1.9}, [](ValueCodec& codec, double s) { codec.sparsity = s; });
  return codecs;
}

bool is_valid(const Recipe& recipe) {
  try {
    validate(recipe);
    return true;
  } catch (const Error&) {
    return false;
  }
}

/// Everything that keeps something back, without a coding.
std::vector<Recipe> schemes() {
  std::vector<Recipe> all{{.error_feedback = true, .exchange = Exchange::gather}};
  for (const Selector& selector : selectors()) {
    for (const Exchange exchange : {Exchange::sum, Exchange::gather}) {
      for (const bool alternate : {false, true}) {
        all.push_back({.error_feedback = true,
                       .selector = std::string(selector.name),
                       .density = kDensity,
                       .alternate_signs = alternate,
                       .exchange = exchange});
      }
    }
  }
  for (const Algorithm& row : registry()) {
    if (row.kind != OperationKind::allreduce || row.takes != Takes::accumulator) continue;
    for (const int teams : {1, 2, 3}) {
      all.push_back({.error_feedback = true,
                     .density = kDensity,
                     .exchange = Exchange::accumulator,
                     .row = std::string(row.name),
                     .teams = teams});
    }
  }
  return all;
}

struct Case {
  const ValueCodecRow* coding;
  Recipe scheme;

  friend void PrintTo(const Case& tried, std::ostream* out) {
    *out << to_string(tried.scheme) << " with " << tried.coding->name;
  }
};

std::vector<Recipe> recipes_of(const Case& tried) {
  std::vector<Recipe> recipes;
  for (const ValueCodec& codec : variants_of(*tried.coding)) {
    Recipe recipe = tried.scheme;
    recipe.values = codec;
    if (is_valid(recipe)) recipes.push_back(recipe);
  }
  return recipes;
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const Recipe& scheme : schemes()) {
    for (const ValueCodecRow& coding : value_codecs()) {
      const Case tried{&coding, scheme};
      if (coding.coding != ValueCoding::raw && !recipes_of(tried).empty()) all.push_back(tried);
    }
  }
  return all;
}

std::string name_of(const Case& tried) {
  const Recipe& scheme = tried.scheme;
  std::string name = scheme.exchange == Exchange::accumulator ? scheme.row : scheme.selector;
  name += "_" + std::string(to_string(scheme.exchange)) + (scheme.alternate_signs ? "_alternating" : "");
  if (scheme.teams > 1) name += "_" + std::to_string(scheme.teams) + "_teams";
  return name + "_" + std::string(tried.coding->name);
}

double norm_of(const Values& values) {
  double sum = 0;
  for (const float value : values) sum += double{value} * value;
  return std::sqrt(sum);
}

/// What the rank with the most keeps back in the end.
double kept_back(const Recipe& recipe, int ranks) {
  Training training{.ranks = ranks, .recipe = recipe, .parameters = {{"w", kValues}}, .steps = kSteps};
  training.gradient = [](int rank, std::uint64_t step, ParameterId id) {
    return float_gradient(kValues, rank, step, id);
  };
  const Trained trained = train(training);
  expect_same_updates(trained);
  double most = 0;
  for (const Values& residual : trained.residuals[0]) {
    const double norm = norm_of(residual);
    if (!std::isfinite(norm)) return norm;
    most = std::max(most, norm);
  }
  return most;
}

class EveryPair : public ::testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(Tables, EveryPair, ::testing::ValuesIn(cases()),
                         [](const auto& info) { return name_of(info.param); });

// What ranks select and code by themselves does not depend on how many they are.
std::vector<int> ranks_for(const Recipe& scheme) {
  if (scheme.exchange != Exchange::accumulator) return {1, 3};
  if (scheme.teams > 1) return {scheme.teams, 2 * scheme.teams};
  return {1, 2, 3, 4};
}

TEST_P(EveryPair, stays_bounded) {
  const double gradient = norm_of(float_gradient(kValues, 0, 0, 0));
  for (const int ranks : ranks_for(GetParam().scheme)) {
    const double uncoded = is_valid(GetParam().scheme) ? kept_back(GetParam().scheme, ranks) : 0;
    for (const Recipe& recipe : recipes_of(GetParam())) {
      EXPECT_LE(kept_back(recipe, ranks), 3 * uncoded + 20 * ranks * gradient)
          << to_string(recipe) << " on " << ranks << " ranks; uncoded " << uncoded << ", gradient " << gradient;
    }
  }
}

// The mean of P ranks' codings has a P-th of the variance of one, which QSGD bounds by min(B/s², √B/s) squares of the
// gradient. The preset codes twice, and must keep that.
TEST(Qsgd, KeepsTheVarianceThatItsAuthorsBound) {
  constexpr std::uint64_t kSize = 4096, kRoundings = 40;
  constexpr double kBucket = 1024;
  for (const int bits : {2, 4, 8}) {
    const double levels = (1 << (bits - 1)) - 1;
    const double bound = std::min(kBucket / (levels * levels), std::sqrt(kBucket) / levels);
    for (const int ranks : {1, 2, 4}) {
      Training training{.ranks = ranks, .recipe = parse_recipe("qsgd"), .parameters = {{"w", kSize}}};
      training.recipe.values.bits = bits;
      training.steps = kRoundings;
      training.gradient = [](int rank, std::uint64_t, ParameterId id) { return float_gradient(kSize, rank, 0, id); };
      const Trained trained = train(training);
      Values mean(kSize);
      double squares = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        const Values gradient = training.gradient(rank, 0, 0);
        for (std::size_t i = 0; i < kSize; ++i) mean[i] += gradient[i] / static_cast<float>(ranks);
        squares += norm_of(gradient) * norm_of(gradient) / ranks;
      }
      double variance = 0;
      for (const auto& step : trained.updates) {
        Values error = step[0][0];
        for (std::size_t i = 0; i < kSize; ++i) error[i] -= mean[i];
        variance += norm_of(error) * norm_of(error) / kRoundings;
      }
      EXPECT_LE(variance, bound * squares / ranks) << bits << " bits on " << ranks << " ranks";
    }
  }
}

}  // namespace
}  // namespace tulle::gradient
