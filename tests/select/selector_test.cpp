// What holds for every row of the registry.
#include "tulle/select/selector.hpp"

#include "select/reference.hpp"
#include "select/share.hpp"

namespace tulle::test {
namespace {

class EverySelector : public ::testing::TestWithParam<Selector> {};
INSTANTIATE_TEST_SUITE_P(Rows, EverySelector, ::testing::ValuesIn(selectors().begin(), selectors().end()),
                         [](const auto& info) { return std::string(info.param.name); });

// About one value in twenty; what counts for one row does not disturb the others.
SelectOptions usual_options() { return {.density = 0.05, .threshold = 700, .seed = 3, .step = 4}; }

template <class V>
Selection run(const Selector& row, const std::vector<V>& values, const SelectOptions& options) {
  return select(row.name, std::span<const V>(values), options);
}

template <class V>
std::vector<V> without_selected(const std::vector<V>& values, const AnyStream& selected) {
  std::vector<V> rest = values;
  for (std::uint64_t i = 0; i < selected.nnz(); ++i) rest[selected.index_at(i)] = V{};
  return rest;
}

// The same values at some indices, none of them zero, in order.
template <class V>
void expect_part_of(const AnyStream& selected, const std::vector<V>& values) {
  EXPECT_NO_THROW(selected.validate());
  EXPECT_EQ(selected.dimension(), values.size());
  EXPECT_FALSE(selected.is_dense());
  for (const auto& [index, value] : model_of<V>(selected)) {
    ASSERT_TRUE(same_value(value, values[index])) << index;
    ASSERT_NE(magnitude(value), 0) << index;
  }
}

template <class V>
void expect_residual(const Selector& row) {
  for (const std::size_t count : {0, 1, 700, 20000}) {
    SCOPED_TRACE(::testing::Message() << count << " values of " << to_string(kValueTypeOf<V>));
    const std::vector<V> values = mixed_values<V>(count, 1);
    const Selection expected = run(row, values, usual_options());
    expect_part_of(expected.stream, values);
    std::vector<V> residual = values;
    const Selection selection = select_in_place(row.name, std::span(residual), usual_options());
    EXPECT_EQ(selection.stream, expected.stream);
    EXPECT_EQ(selection.threshold, expected.threshold);
    EXPECT_EQ(selection.passed, expected.passed);
    EXPECT_TRUE(same_values(residual, without_selected(values, expected.stream)));
  }
}

TEST_P(EverySelector, SelectsSomeValuesAndLeavesTheRest) {
  expect_residual<float>(GetParam());
  expect_residual<double>(GetParam());
  expect_residual<Half>(GetParam());
  expect_residual<Bfloat16>(GetParam());
  expect_residual<std::int32_t>(GetParam());
  expect_residual<std::int64_t>(GetParam());
}

template <class V>
void expect_fused(const Selector& row) {
  const std::vector<V> before = mixed_values<V>(20000, 2);
  const std::vector<V> gradient = mixed_values<V>(20000, 3);
  std::vector<V> expected(before.size());
  for (std::size_t i = 0; i < before.size(); ++i) {
    expected[i] = static_cast<V>(combined(OpCode::sum, Computed<V>(before[i]), Computed<V>(gradient[i])));
  }
  std::vector<V> residual = before;
  const Selection selection =
      accumulate_and_select(row.name, std::span(residual), std::span<const V>(gradient), usual_options());
  EXPECT_EQ(selection.stream, select_in_place(row.name, std::span(expected), usual_options()).stream);
  EXPECT_TRUE(same_values(residual, expected));
}

TEST_P(EverySelector, AccumulatesFirstWhereAskedTo) {
  expect_fused<float>(GetParam());
  expect_fused<double>(GetParam());
  expect_fused<Half>(GetParam());
  expect_fused<std::int32_t>(GetParam());
}

template <class V>
void expect_decayed(const Selector& row) {
  const std::vector<V> before = mixed_values<V>(20000, 5), gradient = mixed_values<V>(20000, 6);
  std::vector<V> expected(before.size());
  for (std::size_t i = 0; i < before.size(); ++i) {
    const Computed<V> decayed = Computed<V>(before[i]) * Computed<V>(0.75);
    expected[i] = static_cast<V>(combined(OpCode::sum, decayed, Computed<V>(gradient[i])));
  }
  std::vector<V> residual = before;
  SelectOptions options = usual_options();
  options.decay = 0.75;
  const Selection selection =
      accumulate_and_select(row.name, std::span(residual), std::span<const V>(gradient), options);
  EXPECT_EQ(selection.stream, select_in_place(row.name, std::span(expected), usual_options()).stream);
  EXPECT_TRUE(same_values(residual, expected));
}

TEST_P(EverySelector, LetsTheResidualDecayFirstWhereAskedTo) {
  expect_decayed<float>(GetParam());
  expect_decayed<double>(GetParam());
  expect_decayed<Half>(GetParam());
  SelectOptions options = usual_options();
  options.decay = 0.5;
  std::vector<std::int32_t> whole(100, 3);
  const std::vector<std::int32_t> more(100, 4);
  EXPECT_THROW(accumulate_and_select(GetParam().name, std::span(whole), std::span<const std::int32_t>(more), options),
               Error);
}

TEST_P(EverySelector, DoesNotDependOnTheNumberOfThreads) {
  const std::vector<float> values = mixed_values<float>(700000, 4);
  SelectOptions options = usual_options();
  options.threads = 1;
  const Selection expected = run(GetParam(), values, options);
  for (const int threads : {0, 2, 5}) {
    options.threads = threads;
    EXPECT_EQ(run(GetParam(), values, options).stream, expected.stream) << threads;
    std::vector<float> residual = values;
    select_in_place(GetParam().name, std::span(residual), options);
    EXPECT_TRUE(same_values(residual, without_selected(values, expected.stream))) << threads;
  }
}

TEST_P(EverySelector, IsTheSameOnEveryTarget) {
  const std::vector<float> floats = mixed_values<float>(20011, 5);
  const std::vector<double> doubles = mixed_values<double>(20011, 5);
  const Selection expected_floats = run(GetParam(), floats, usual_options());
  const Selection expected_doubles = run(GetParam(), doubles, usual_options());
  for_each_target([&] {
    EXPECT_EQ(run(GetParam(), floats, usual_options()).stream, expected_floats.stream);
    EXPECT_EQ(run(GetParam(), floats, usual_options()).threshold, expected_floats.threshold);
    EXPECT_EQ(run(GetParam(), doubles, usual_options()).stream, expected_doubles.stream);
  });
}

TEST_P(EverySelector, SelectsNothingOfZeros) {
  for (const std::size_t count : {1, 1000, 40000}) {
    std::vector<float> zeros(count, 0.0f);
    zeros[count / 2] = -0.0f;
    SelectOptions options = usual_options();
    options.threshold = 0;
    EXPECT_EQ(run(GetParam(), zeros, options).stream.nnz(), 0u);
  }
}

TEST_P(EverySelector, SelectsNothingForKOfZero) {
  const std::vector<float> values = mixed_values<float>(20000, 6);
  EXPECT_EQ(run(GetParam(), values, {.k = 0, .threshold = 1e30}).stream.nnz(), 0u);
}

TEST_P(EverySelector, SelectsAllOfItsNonZerosForKOfNAndMore) {
  const std::vector<float> values = mixed_values<float>(20000, 7);
  std::size_t wanted = non_zeros(values).size();
  if (GetParam().name == "top_k_signed") wanted = std::ranges::count_if(values, [](float v) { return v > 0; });
  if (GetParam().name == "bottom_k_signed") wanted = std::ranges::count_if(values, [](float v) { return v < 0; });
  for (const std::uint64_t k : {20000, 20001, 1000000}) {
    EXPECT_EQ(run(GetParam(), values, {.k = k, .threshold = 0}).stream.nnz(), wanted) << k;
  }
}

TEST_P(EverySelector, TellsDenormalsApart) {
  const float least = std::numeric_limits<float>::denorm_min();
  std::vector<float> values(20000);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = least * static_cast<float>(i % 5000);
  const Selection selection = run(GetParam(), values, {.density = 0.01, .threshold = 4950 * double{least}});
  expect_part_of(selection.stream, values);
  if (GetParam().name == "bottom_k_signed") {
    EXPECT_EQ(selection.stream.nnz(), 0u);
  } else {
    EXPECT_GE(selection.stream.nnz(), 150u);
    EXPECT_LE(selection.stream.nnz(), 400u);
  }
}

TEST_P(EverySelector, NamesTheIndexOfAValueThatIsNotFinite) {
  using Limits = std::numeric_limits<float>;
  for (const float bad : {Limits::quiet_NaN(), -Limits::quiet_NaN(), Limits::infinity(), -Limits::infinity()}) {
    for (const std::size_t count : {1000, 40000}) {
      std::vector<float> values = mixed_values<float>(count, 8);
      values[count - 77] = bad;
      values[count - 5] = bad;
      const std::vector<float> before = values;
      const std::string message = message_of(
          ErrorKind::bad_input, [&] { select_in_place(GetParam().name, std::span(values), usual_options()); });
      EXPECT_CONTAINS(message, "index " + std::to_string(count - 77) + " is");
      EXPECT_EQ(std::memcmp(values.data(), before.data(), count * sizeof(float)), 0) << "the residual has changed";
      EXPECT_THROW(run(GetParam(), values, {.k = 0, .threshold = 1e30}), Error) << "k = 0";
    }
  }
}

TEST_P(EverySelector, SkipsOrTakesValuesThatAreNotFiniteWhereAskedTo) {
  std::vector<float> values = mixed_values<float>(40000, 9);
  values[7] = std::numeric_limits<float>::infinity();
  values[39000] = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> finite = values;
  finite[7] = finite[39000] = 0;
  SelectOptions options = usual_options();
  options.non_finite = NonFinite::skip;
  std::vector<float> residual = values;
  const Selection selection = select_in_place(GetParam().name, std::span(residual), options);
  EXPECT_TRUE(std::isinf(residual[7]) && std::isnan(residual[39000]));
  if (GetParam().name != "sampled_top_k") {
    EXPECT_EQ(selection.stream, run(GetParam(), finite, options).stream);
  }
  options.non_finite = NonFinite::largest;
  const auto taken = model_of<float>(run(GetParam(), values, options).stream);
  if (GetParam().name != "random_k") {
    EXPECT_TRUE(taken.contains(7) && taken.contains(39000));
  }
}

TEST_P(EverySelector, AllocatesNothingInTheSteadyState) {
  const std::vector<float> gradient = mixed_values<float>(100000, 10);
  std::vector<float> residual(gradient.size());
  const auto step = [&] {
    std::ranges::fill(residual, 0.0f);  // so that all steps find the same
    accumulate_and_select(GetParam().name, std::span(residual), std::span<const float>(gradient), usual_options());
  };
  for (int i = 0; i < 3; ++i) step();
  const std::uint64_t before = pool_stats().system_allocations;
  for (int i = 0; i < 5; ++i) step();
  EXPECT_EQ(pool_stats().system_allocations, before);
}

TEST(Selectors, RoundAShareUpAndNoProductOfIt) {
  EXPECT_EQ(values_of_share(0.05, 513), 26u);
  EXPECT_EQ(values_of_share(0.07, 100), 7u);  // the product is 7.000000000000001
  EXPECT_EQ(values_of_share(1e-9, 100), 1u);
  EXPECT_EQ(values_of_share(0, 100), 0u);
  EXPECT_EQ(values_of_share(1, 1u << 31), 1u << 31);
  for (std::uint64_t percent = 1; percent <= 100; ++percent) {
    EXPECT_EQ(values_of_share(static_cast<double>(percent) / 100, 300), 3 * percent);
  }
}

TEST(Selectors, AreFoundByName) {
  for (const Selector& row : selectors()) {
    EXPECT_EQ(&selector_from(row.name), &row);
    EXPECT_FALSE(row.summary.empty());
  }
  EXPECT_CONTAINS(message_of(ErrorKind::bad_input, [] { selector_from("top"); }), "exact_top_k, bucketed_top_k");
}

TEST(Selectors, NameTheOptionThatIsMissingOrWrong) {
  const std::vector<float> values{1, 2, 3};
  const auto message = [&](std::string_view name, const SelectOptions& options) {
    return message_of(ErrorKind::bad_input, [&] { select(name, std::span<const float>(values), options); });
  };
  EXPECT_CONTAINS(message("exact_top_k", {}), "exact_top_k: needs k or density");
  EXPECT_CONTAINS(message("threshold_filter", {.k = 1}), "needs threshold");
  EXPECT_CONTAINS(message("exact_top_k", {.density = 1.5}), "density is 1.5");
  EXPECT_CONTAINS(message("exact_top_k", {.density = std::nan("")}), "density");
  EXPECT_CONTAINS(message("threshold_filter", {.threshold = std::nan("")}), "threshold");
  EXPECT_CONTAINS(message("threshold_filter", {.threshold = -1}), "threshold is -1");
  EXPECT_CONTAINS(message("bucketed_top_k", {.k = 1, .bucket = 0}), "bucket is 0");
  EXPECT_CONTAINS(message("exact_top_k", {.k = 1, .threads = -2}), "threads is -2");
}

TEST(Selectors, DensityIsRoundedUp) {
  const std::vector<float> values = mixed_values<float>(300, 11);
  EXPECT_EQ(select("exact_top_k", std::span<const float>(values), {.density = 0.0001}).stream.nnz(), 1u);
  EXPECT_EQ(select("exact_top_k", std::span<const float>(values), {.density = 0.1}).stream.nnz(), 30u);
  EXPECT_EQ(select("exact_top_k", std::span<const float>(values), {.density = 0}).stream.nnz(), 0u);
}

}  // namespace
}  // namespace tulle::test
