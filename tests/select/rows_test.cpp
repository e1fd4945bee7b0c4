// What each row promises beyond what holds for all, against sorting.
#include <cmath>
#include <numeric>
#include <set>

#include "select/candidates.hpp"
#include "select/reference.hpp"
#include "select/share.hpp"
#include "tulle/select/selector.hpp"

namespace tulle::test {
namespace {

template <class V>
Selection run(std::string_view name, const std::vector<V>& values, const SelectOptions& options) {
  return select(name, std::span<const V>(values), options);
}

// Gaussian, or with a tail so heavy that the largest value is far beyond the others.
std::vector<float> random_floats(std::size_t count, std::uint64_t seed, bool heavy = false) {
  Philox random(seed);
  std::vector<float> values(count);
  for (float& value : values) {
    const double normal = std::sqrt(-2 * std::log(1 - random.uniform())) * std::cos(6.283185307 * random.uniform());
    value = static_cast<float>(heavy ? std::sinh(3 * normal) : normal);
  }
  return values;
}

template <class V>
class ExactRows : public ::testing::Test {};
TYPED_TEST_SUITE(ExactRows, ValueTypes);

TYPED_TEST(ExactRows, EqualSorting) {
  for (const std::size_t count : {1, 65, 5000, 17000}) {
    const std::vector<TypeParam> values = mixed_values<TypeParam>(count, count);
    for (const std::uint64_t k :
         {std::uint64_t{1}, std::uint64_t{50}, std::uint64_t{count / 10}, std::uint64_t{count / 2}}) {
      const Model<TypeParam> expected = reference_top_k(non_zeros(values), k);
      for (const std::string_view name : {"exact_top_k", "trimmed_top_k"}) {
        const Selection selection = run(name, values, {.k = k});
        EXPECT_TRUE(same_model(model_of<TypeParam>(selection.stream), expected)) << name << ' ' << count << ' ' << k;
      }
    }
  }
}

TYPED_TEST(ExactRows, ThresholdOfExactTopKLetsThemPassAgain) {
  const std::vector<TypeParam> values = mixed_values<TypeParam>(20000, 1);
  const Selection selection = run("exact_top_k", values, {.k = 100});
  const Selection again = run("threshold_filter", values, {.threshold = selection.threshold, .cap = 100});
  EXPECT_EQ(again.stream, selection.stream);
}

TYPED_TEST(ExactRows, OfASignEqualSortingThatSign) {
  const std::vector<TypeParam> values = mixed_values<TypeParam>(20000, 2);
  for (const bool positive : {true, false}) {
    Model<TypeParam> model = non_zeros(values);
    std::erase_if(model,
                  [&](const auto& pair) { return (static_cast<Computed<TypeParam>>(pair.second) > 0) != positive; });
    for (const std::uint64_t k : {1, 300, 15000}) {
      const Selection selection = run(positive ? "top_k_signed" : "bottom_k_signed", values, {.k = k});
      EXPECT_TRUE(same_model(model_of<TypeParam>(selection.stream), reference_top_k(model, k))) << positive << k;
      for (const std::string_view name : {"exact_top_k", "trimmed_top_k"}) {
        const Selection same = run(name, values, {.k = k, .sign = positive ? Sign::positive : Sign::negative});
        EXPECT_EQ(same.stream, selection.stream) << name << positive << k;
      }
    }
  }
}

// A threshold that k to 2k values of that sign reach, and it serves the next step.
TYPED_TEST(ExactRows, ThresholdsOfASignLetThatSignPass) {
  std::vector<TypeParam> values = mixed_values<TypeParam>(20000, 3);
  for (std::size_t i = 0; i < values.size(); i += 10) values[i] = static_cast<TypeParam>(static_cast<float>(i) * -3.0f);
  for (const Sign sign : {Sign::positive, Sign::negative}) {
    constexpr std::uint64_t kK = 400;
    const Selection found = run("threshold_binary_search", values, {.k = kK, .sign = sign});
    EXPECT_GE(found.stream.nnz(), kK);
    EXPECT_LE(found.stream.nnz(), 2 * kK);
    Model<TypeParam> expected = non_zeros(values);
    std::erase_if(expected, [&](const auto& pair) {
      const bool is_positive = static_cast<Computed<TypeParam>>(pair.second) > 0;
      return is_positive != (sign == Sign::positive) || magnitude(pair.second) < found.threshold;
    });
    if (found.passed <= 2 * kK) {
      EXPECT_TRUE(same_model(model_of<TypeParam>(found.stream), expected));
    }
    const Selection again = run("threshold_filter", values, {.threshold = found.threshold, .sign = sign});
    EXPECT_TRUE(same_model(model_of<TypeParam>(again.stream), expected));
    std::vector<TypeParam> residual = values;
    const Selection capped = select_in_place("threshold_filter", std::span<TypeParam>(residual),
                                             {.threshold = found.threshold, .cap = 50, .sign = sign});
    EXPECT_TRUE(same_model(model_of<TypeParam>(capped.stream), reference_top_k(expected, 50)));
    EXPECT_TRUE(same_model(non_zeros(residual), without(non_zeros(values), reference_top_k(expected, 50))));
  }
}

TEST(Signs, AreRefusedByRowsThatDoNotLookAtThem) {
  const std::vector<float> values = random_floats(100, 1);
  for (const std::string_view name : {"bucketed_top_k", "sampled_top_k", "random_k", "top_k_signed"}) {
    EXPECT_THROW(run(name, values, {.k = 3, .sign = Sign::positive}), Error) << name;
  }
}

// Of the positive values the mean is 1 and the largest 9, whatever the negative ones are.
TEST(TrimmedTopK, OfASignIsTrimmedByThatSignsMean) {
  std::vector<float> values(16, 0.0f);
  values[3] = 9;
  values[9] = 7;
  values[12] = -32;
  const Selection selection = run("trimmed_top_k", values, {.k = 1, .sign = Sign::positive});
  EXPECT_DOUBLE_EQ(selection.threshold, static_cast<float>(1 + 0.8 * 8));
  EXPECT_EQ(selection.stream.index_at(0), 3u);
}

TEST(ExactTopK, BreaksTiesByTheLowerIndex) {
  for (const std::size_t count : {100, 50000}) {
    std::vector<float> values(count, 0.5f);
    values[count - 1] = -2;
    const Selection selection = run("exact_top_k", values, {.k = 10});
    ASSERT_EQ(selection.stream.nnz(), 10u);
    for (std::uint64_t i = 0; i < 9; ++i) EXPECT_EQ(selection.stream.index_at(i), i);
    EXPECT_EQ(selection.stream.index_at(9), count - 1);
  }
}

// Where the values are sampled, found by sampling a vector that tells positions.
std::set<std::uint64_t> sampled_positions(std::uint64_t count) {
  std::vector<std::int32_t> positions(count);
  std::iota(positions.begin(), positions.end(), 1);
  const DenseInput input{.type = ValueType::i32,
                         .dimension = count,
                         .range = {0, count},
                         .values = reinterpret_cast<const std::byte*>(positions.data())};
  const KeySample sample(input, {}, KeySample::default_size(count));
  std::set<std::uint64_t> sampled;
  for (std::size_t rank = 0; rank < sample.size(); ++rank) sampled.insert(sample.at_rank(rank) - 1);
  return sampled;
}

// The sample sees all large values and no others, so its guess lets too few pass.
TEST(ExactTopK, SurvivesDataThatMisleadsTheSample) {
  std::vector<float> values = random_floats(100000, 15);
  const std::set<std::uint64_t> sampled = sampled_positions(values.size());
  ASSERT_GE(sampled.size(), 1000u);
  for (const std::uint64_t position : sampled) values[position] += std::copysign(100.0f, values[position]);
  const std::uint64_t k = 2 * sampled.size();
  const Model<float> expected = reference_top_k(non_zeros(values), k);
  std::vector<float> residual(values.size());
  const Selection selection =
      accumulate_and_select("exact_top_k", std::span(residual), std::span<const float>(values), {.k = k});
  EXPECT_TRUE(same_model(model_of<float>(selection.stream), expected));
  EXPECT_TRUE(same_model(model_of<float>(run("exact_top_k", values, {.k = k}).stream), expected));
}

// Every layout in columns has most of its large values in one of them, so that the bound lets nearly all values pass.
TEST(ExactTopK, SurvivesDataThatMisleadsTheColumns) {
  for_each_target([] {
    for (const std::size_t stride : {16, 112, 1024}) {
      std::vector<float> values = random_floats(14001, stride);
      for (std::size_t i = stride - 1; i < values.size(); i += stride) values[i] *= 1000;
      for (const std::uint64_t k : {1, 20, 150, 1700}) {
        const Model<float> expected = reference_top_k(non_zeros(values), k);
        EXPECT_TRUE(same_model(model_of<float>(run("exact_top_k", values, {.k = k}).stream), expected)) << stride;
      }
    }
  });
}

// The bound is one that the values which are left out reach too.
TEST(ExactTopK, FindsTheLargestBesideMoreInfinitiesThanItWants) {
  for_each_target([] {
    std::vector<float> values = random_floats(9000, 3), finite = values;
    for (std::size_t i = 0; i < values.size(); i += 41) {
      values[i] = i % 82 == 0 ? -std::numeric_limits<float>::infinity() : std::numeric_limits<float>::quiet_NaN();
      finite[i] = 0;
    }
    const Selection selection = run("exact_top_k", values, {.k = 100, .non_finite = NonFinite::skip});
    EXPECT_TRUE(same_model(model_of<float>(selection.stream), reference_top_k(non_zeros(finite), 100)));
    EXPECT_EQ(run("exact_top_k", values, {.k = 100, .non_finite = NonFinite::largest}).stream.index_at(1), 123u);
    EXPECT_THROW(run("exact_top_k", values, {.k = 100}), Error);
  });
}

// Selecting nothing, everything, of zeros, of denormals, of one value that all are: at sizes around those at which the
// way changes.
TEST(ExactTopK, HoldsAtItsEdges) {
  for_each_target([] {
    for (const std::size_t count : {1, 63, 64, 65, 500, 4095, 4097, 65536, 65537}) {
      for (const float value : {0.0f, -0.0f, 1e-45f, -1.5f, std::numeric_limits<float>::max()}) {
        const std::vector<float> values(count, value);
        for (const std::uint64_t k : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{count / 9}, count}) {
          const Selection selection = run("exact_top_k", values, {.k = k});
          const std::uint64_t found = value == 0 ? 0 : k;
          ASSERT_EQ(selection.stream.nnz(), found) << count << ' ' << value;
          EXPECT_TRUE(found == 0 || selection.stream.index_at(found - 1) == found - 1) << count;
        }
      }
    }
  });
}

template <class V>
Model<V> reference_buckets(const std::vector<V>& values, std::uint64_t k, std::uint64_t bucket) {
  Model<V> selected;
  for (std::uint64_t first = 0; first < values.size(); first += bucket) {
    const Range range{first, std::min<std::uint64_t>(first + bucket, values.size())};
    selected.merge(reference_top_k(non_zeros(std::span<const V>(values), range), k));
  }
  return selected;
}

template <class V>
class BucketedTopK : public ::testing::Test {};
TYPED_TEST_SUITE(BucketedTopK, ValueTypes);

template <class V>
void expect_buckets(const std::vector<V>& values, std::uint64_t k, std::uint64_t bucket) {
  const Model<V> expected = reference_buckets(values, k, bucket);
  for_each_target([&] {
    const Selection selection = run("bucketed_top_k", values, {.k = k, .bucket = bucket});
    EXPECT_TRUE(same_model(model_of<V>(selection.stream), expected)) << k << " of " << bucket;
  });
}

TYPED_TEST(BucketedTopK, EqualsSortingEachBucketOnEveryTarget) {
  const std::vector<TypeParam> values = mixed_values<TypeParam>(1301, 3);
  const std::vector<TypeParam> equal(700, static_cast<TypeParam>(1.0f));
  for (const std::uint64_t bucket : {1, 7, 64, 100, 512, 10000}) {
    for (const std::uint64_t k : {1, 3, 8, 16, 17, 65, 512}) {
      expect_buckets(values, k, bucket);
      expect_buckets(equal, k, bucket);
    }
  }
}

TEST(BucketedTopKRandomized, TakesKOfTheLargestOfEachBucket) {
  const std::vector<float> values = random_floats(51200, 4);
  for (const std::uint64_t k : {1, 4, 16}) {
    const auto exact = model_of<float>(run("bucketed_top_k", values, {.k = k}).stream);
    const SelectOptions options{.k = k, .form = BucketForm::randomized, .seed = 1};
    const auto randomized = model_of<float>(run("bucketed_top_k", values, options).stream);
    EXPECT_EQ(randomized.size(), exact.size());
    std::size_t found = 0;
    for (const auto& [index, value] : randomized) found += exact.contains(index);
    EXPECT_GE(found, exact.size() * 2 / 3) << k;
  }
}

TEST(BucketedTopKRandomized, IsReproducibleBySeedAndStep) {
  const std::vector<float> values = random_floats(51200, 5);
  SelectOptions options{.k = 16, .form = BucketForm::randomized, .seed = 1, .step = 1};
  const AnyStream first = run("bucketed_top_k", values, options).stream;
  EXPECT_EQ(run("bucketed_top_k", values, options).stream, first);
  options.step = 2;
  EXPECT_FALSE(run("bucketed_top_k", values, options).stream == first);
}

TEST(TrimmedTopK, ReportsAThresholdThatAtLeastKReach) {
  for (const bool heavy : {false, true}) {
    const std::vector<float> values = random_floats(100000, 6, heavy);
    const Selection selection = run("trimmed_top_k", values, {.k = 1000});
    EXPECT_GE(selection.passed, 1000u);
    const auto passing = std::ranges::count_if(values, [&](float v) { return std::fabs(v) >= selection.threshold; });
    EXPECT_EQ(selection.passed, static_cast<std::uint64_t>(passing));
  }
}

// mean 1, max 9: the ladder is 7.4, 5.8, 4.2, 2.6, 1.
TEST(TrimmedTopK, LowersTheThresholdByAFifthOfTheWayToTheMean) {
  std::vector<float> values(16, 0.0f);
  values[3] = 9;
  values[9] = 5;
  values[12] = -2;
  EXPECT_DOUBLE_EQ(run("trimmed_top_k", values, {.k = 1}).threshold, static_cast<float>(1 + 0.8 * 8) + 0.0);
  const Selection two = run("trimmed_top_k", values, {.k = 2});
  EXPECT_NEAR(two.threshold, 1 + 0.4 * 8, 1e-6);
  EXPECT_EQ(two.passed, 2u);
  EXPECT_NEAR(run("trimmed_top_k", values, {.k = 3}).threshold, 1, 1e-6);
  EXPECT_EQ(run("trimmed_top_k", values, {.k = 4}).stream.nnz(), 3u);
}

TEST(ThresholdBinarySearch, LetsKTo2KPassAndTheLargestAmongThem) {
  for (const bool heavy : {false, true}) {
    for (const std::size_t count : {3000, 40000}) {
      const std::vector<float> values = random_floats(count, 7, heavy);
      for (const std::uint64_t k : {1, 30, 1000}) {
        const Selection selection = run("threshold_binary_search", values, {.k = k});
        const auto selected = model_of<float>(selection.stream);
        EXPECT_GE(selected.size(), k);
        EXPECT_LE(selected.size(), 2 * k);
        EXPECT_TRUE(same_model(selected, reference_top_k(non_zeros(values), selected.size())));
        for (const auto& [index, value] : selected) EXPECT_GE(std::fabs(value), selection.threshold);
      }
    }
  }
}

TEST(ThresholdBinarySearch, SearchesBelowTheMeanWhereFewAreAboveIt) {
  std::vector<float> values(1000, 0.001f);
  for (std::size_t i = 0; i < 100; ++i) values[i] = 0.5f + static_cast<float>(i) * 0.001f;
  values[999] = 1e6f;
  const Selection selection = run("threshold_binary_search", values, {.k = 50});
  EXPECT_GE(selection.stream.nnz(), 50u);
  EXPECT_LE(selection.stream.nnz(), 100u);
}

TEST(ThresholdBinarySearch, TrimsTies) {
  const std::vector<float> values(5000, 1.0f);
  const Selection selection = run("threshold_binary_search", values, {.k = 100});
  EXPECT_EQ(selection.stream.nnz(), 200u);
  EXPECT_EQ(selection.passed, 5000u);
}

TEST(ThresholdFilter, TakesAllThatReachTheThreshold) {
  const std::vector<float> values = mixed_values<float>(20011, 8);
  for (const double threshold : {0.0, 7.0, 300.0, 1e9}) {
    Model<float> expected = non_zeros(values);
    std::erase_if(expected, [&](const auto& pair) { return std::fabs(pair.second) < threshold; });
    const Selection selection = run("threshold_filter", values, {.threshold = threshold});
    EXPECT_TRUE(same_model(model_of<float>(selection.stream), expected));
    EXPECT_EQ(selection.passed, expected.size());
  }
}

TEST(ThresholdFilter, CapsWhatPassesAndPutsTheOthersBack) {
  const std::vector<float> values = mixed_values<float>(20000, 9);
  std::vector<float> residual = values;
  const Selection selection = select_in_place("threshold_filter", std::span(residual), {.threshold = 100, .cap = 500});
  const Model<float> expected = reference_top_k(non_zeros(values), 500);
  EXPECT_TRUE(same_model(model_of<float>(selection.stream), expected));
  EXPECT_GT(selection.passed, 5000u);
  for (std::size_t i = 0; i < values.size(); ++i) {
    ASSERT_TRUE(same_value(residual[i], expected.contains(i) ? 0.0f : values[i])) << i;
  }
}

TEST(SampledTopK, SelectsAboutKAndOnlyWhatReachesItsThreshold) {
  for (const bool heavy : {false, true}) {
    const std::vector<float> values = random_floats(400000, 10, heavy);
    for (std::uint64_t step = 0; step < 5; ++step) {
      const Selection selection = run("sampled_top_k", values, {.k = 4000, .step = step});
      EXPECT_GE(selection.stream.nnz(), 2000u);
      EXPECT_LE(selection.stream.nnz(), 5333u);
      for (const auto& [index, value] : model_of<float>(selection.stream)) {
        ASSERT_GE(std::fabs(value), selection.threshold);
      }
    }
  }
}

// On average no fewer than asked for, whatever the size: small inputs have no sample to speak of.
TEST(SampledTopK, SelectsKOnAverageOfAnySize) {
  constexpr std::uint64_t kDraws = 200;
  struct Case {
    std::size_t count;
    double density;
  };
  for (const auto& [count, density] : {Case{65, 0.05}, Case{513, 0.05}, Case{5000, 0.01}, Case{5000, 0.05},
                                       Case{20000, 0.001}, Case{100000, 0.001}, Case{100000, 0.05}}) {
    const std::vector<float> values = random_floats(count, 21);
    const std::uint64_t k = values_of_share(density, count);
    std::uint64_t total = 0, least = count;
    for (std::uint64_t step = 0; step < kDraws; ++step) {
      const std::uint64_t selected = run("sampled_top_k", values, {.density = density, .step = step}).stream.nnz();
      total += selected;
      least = std::min(least, selected);
    }
    SCOPED_TRACE(::testing::Message() << count << " values, density " << density);
    EXPECT_GE(static_cast<double>(total), static_cast<double>(k * kDraws));
    EXPECT_LE(3 * total, 4 * k * kDraws);
    EXPECT_GE(4 * least, 3 * k);
  }
}

// The sample sees all large values and no others, so its threshold lets too few pass.
TEST(SampledTopK, SurvivesDataThatMisleadsTheSample) {
  std::vector<float> values = random_floats(100000, 15);
  const std::set<std::uint64_t> sampled = sampled_positions(values.size());
  for (const std::uint64_t position : sampled) values[position] += std::copysign(100.0f, values[position]);
  const std::uint64_t k = 2 * sampled.size();
  std::vector<float> residual(values.size());
  const Selection selection =
      accumulate_and_select("sampled_top_k", std::span(residual), std::span<const float>(values), {.k = k});
  EXPECT_GE(4 * selection.stream.nnz(), 3 * k);
  EXPECT_LE(3 * selection.stream.nnz(), 4 * k);
  for (const auto& [index, value] : model_of<float>(selection.stream)) residual[index] += value;
  EXPECT_EQ(residual, values);
}

// Values of which most are equal: constant, of two magnitudes or signs, and with a few that are larger or smaller.
std::vector<std::vector<float>> values_that_are_mostly_equal(std::size_t count) {
  const auto drawn = [&](auto value_of) {
    const Philox random(7);
    std::vector<float> values;
    for (std::size_t i = 0; i < count; ++i) values.push_back(value_of(random.at(i) % 1000));
    return values;
  };
  return {drawn([](auto) { return 0.5f; }), drawn([](auto draw) { return draw < 500 ? 1.0f : 2.0f; }),
          drawn([](auto draw) { return draw < 500 ? -1.0f : 1.0f; }),
          drawn([](auto draw) { return draw < 1 ? static_cast<float>(draw) + 3.0f : 1.0f; }),
          drawn([](auto draw) { return draw < 500 ? 0.0f : 1.0f; })};
}

TEST(Ties, AreTakenFromTheFrontAndNotAllGathered) {
  constexpr std::uint64_t kCount = 200'000, kWanted = 700;
  for (const std::vector<float>& values : values_that_are_mostly_equal(kCount)) {
    Model<float> model;
    for (std::size_t i = 0; i < values.size(); ++i)
      if (values[i] != 0) model[i] = values[i];
    for (const Sign sign : {Sign::any, Sign::positive}) {
      for (const std::string_view row : {"exact_top_k", "trimmed_top_k", "threshold_binary_search"}) {
        const Selection selection = run(row, values, {.k = kWanted, .sign = sign});
        const std::uint64_t count = row == "threshold_binary_search" ? selection.stream.nnz() : kWanted;
        EXPECT_GE(selection.stream.nnz(), kWanted) << row;
        EXPECT_LE(selection.stream.nnz(), 2 * kWanted) << row;
        Model<float> wanted = model;
        if (sign == Sign::positive) std::erase_if(wanted, [](const auto& pair) { return pair.second < 0; });
        EXPECT_EQ(model_of<float>(selection.stream), reference_top_k(wanted, count)) << row;
        EXPECT_LT(selection.passed, kCount / 2) << row;
      }
    }
  }
}

TEST(SampledTopK, SelectsAgainWhereTooManyPass) {
  const std::vector<float> equal(400000, 1.0f);
  const Selection selection = run("sampled_top_k", equal, {.k = 4000});
  EXPECT_EQ(selection.stream.nnz(), 4000u);
  EXPECT_EQ(selection.passed, 400000u);
}

TEST(SampledTopK, DependsOnSeedAndStepAlone) {
  const std::vector<float> values = random_floats(400000, 11);
  const auto threshold = [&](std::uint64_t seed, std::uint64_t step) {
    return run("sampled_top_k", values, {.k = 4000, .seed = seed, .step = step}).threshold;
  };
  EXPECT_EQ(threshold(1, 1), threshold(1, 1));
  EXPECT_NE(threshold(1, 1), threshold(1, 2));
  EXPECT_NE(threshold(1, 1), threshold(2, 1));
}

TEST(RandomK, SelectsExactlyKWhateverTheValues) {
  const std::vector<float> values = random_floats(1000, 12);
  for (const std::uint64_t k : {1, 10, 499, 500, 501, 999}) {
    EXPECT_EQ(run("random_k", values, {.k = k}).stream.nnz(), k);
  }
}

// 4000 steps of 5 and of 15 in 20: each index 1000 or 3000 times, with a deviation of 27. Five of them are 137.
TEST(RandomK, DrawsAllIndicesEquallyOften) {
  const std::vector<float> values(20, 1.0f);
  for (const std::uint64_t k : {5, 15}) {
    std::vector<int> times(20);
    for (std::uint64_t step = 0; step < 4000; ++step) {
      const AnyStream stream = run("random_k", values, {.k = k, .seed = 7, .step = step}).stream;
      for (std::uint64_t i = 0; i < stream.nnz(); ++i) ++times[stream.index_at(i)];
    }
    for (const int count : times) EXPECT_NEAR(count, 200.0 * static_cast<double>(k), 137);
  }
}

TEST(RandomK, RanksWithTheSameSeedAndStepDrawTheSame) {
  const std::vector<float> mine = random_floats(5000, 13);
  const std::vector<float> yours = random_floats(5000, 14);
  const SelectOptions options{.k = 50, .seed = 1, .step = 9};
  EXPECT_TRUE(std::ranges::equal(run("random_k", mine, options).stream.indices_buffer().bytes(),
                                 run("random_k", yours, options).stream.indices_buffer().bytes()));
}

}  // namespace
}  // namespace tulle::test
