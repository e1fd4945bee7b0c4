// Means over the streams that hold an index, against std::map; and norms.
#include "stream/model.hpp"

namespace tulle::test {
namespace {

template <class V>
Model<V> means(const std::vector<Model<V>>& models, const std::vector<double>& factors) {
  std::map<std::uint64_t, std::pair<double, int>> sums;
  for (std::size_t s = 0; s < models.size(); ++s) {
    for (const auto& [index, value] : models[s]) {
      auto& [sum, count] = sums[index];
      sum += static_cast<double>(static_cast<Computed<V>>(factors[s])) *
             static_cast<double>(static_cast<Computed<V>>(value));
      count += 1;
    }
  }
  Model<V> result;
  for (const auto& [index, sum] : sums) {
    result[index] = static_cast<V>(static_cast<Computed<V>>(sum.first / sum.second));
  }
  return result;
}

template <class V>
class MeanOfHolders : public ::testing::Test {};
using FloatTypes = ::testing::Types<float, double, Half>;
TYPED_TEST_SUITE(MeanOfHolders, FloatTypes);

TYPED_TEST(MeanOfHolders, is_what_a_map_gives) {
  using V = TypeParam;
  EXPECT_TRUE(rc::check([] {
    const std::uint64_t dimension = *rc::gen::element<std::uint64_t>(70, 5000, std::uint64_t{1} << 33);
    const std::uint64_t begin = *rc::gen::inRange<std::uint64_t>(0, dimension - 60);
    const auto models = *rc::gen::nonEmpty(rc::gen::container<std::vector<Model<V>>>(
        rc::gen::oneOf(arbitrary_model<V>(begin, begin + 60), arbitrary_model<V>(0, dimension))));
    std::vector<double> factors;
    std::vector<AnyStream> streams;
    for (const Model<V>& model : models) {
      factors.push_back(*rc::gen::element(1.0, 0.3, 1e-3));
      streams.push_back(stream_of(dimension, model));
    }
    KernelReport report;
    const AnyStream mean = mean_of_holders(streams, factors, &report);
    RC_ASSERT(same_model(model_of<V>(mean), means(models, factors)));
    mean.validate();
  }));
}

TYPED_TEST(MeanOfHolders, is_dense_where_a_stream_is) {
  using V = TypeParam;
  constexpr std::uint64_t kDimension = 5000;
  Model<V> full, some;
  for (std::uint64_t i = 0; i < kDimension; ++i) full[i] = static_cast<V>(static_cast<float>(i % 7));
  for (std::uint64_t i = 3; i < kDimension; i += 5) some[i] = static_cast<V>(2.5f);
  const std::vector<double> factors{1, 0.5, 1};
  const AnyStream dense = to_dense(stream_of(kDimension, full), Op::sum());
  for (const std::size_t place : {0u, 1u, 2u}) {
    std::vector<AnyStream> streams(3, stream_of(kDimension, some));
    std::vector<Model<V>> models(3, some);
    streams[place] = dense;
    models[place] = full;
    const AnyStream mean = mean_of_holders(streams, factors);
    EXPECT_TRUE(mean.is_dense());
    EXPECT_TRUE(same_model(model_of<V>(mean), means(models, factors)));
  }
}

TEST(MeanOfHolders, refuses_integers_and_streams_that_do_not_match) {
  const std::vector<double> two{1, 1};
  const std::vector<AnyStream> integers(2, Stream<int>(4));
  EXPECT_CONTAINS(message_of(ErrorKind::bad_input, [&] { (void)mean_of_holders(integers, two); }), "mean of i32");
  const std::vector<AnyStream> different{Stream<float>(4), Stream<float>(5)};
  EXPECT_CONTAINS(message_of(ErrorKind::bad_input, [&] { (void)mean_of_holders(different, two); }), "do not match");
}

TEST(MeanOfHolders, counts_phantoms_as_a_sum_does) {
  const std::vector<AnyStream> streams(3, AnyStream::phantom(ValueType::f32, 100, {0, 100}, Layout::sparse, 10));
  const std::vector<double> ones{1, 1, 1};
  KernelReport report;
  const AnyStream mean = mean_of_holders(streams, ones, &report);
  EXPECT_TRUE(mean.is_phantom());
  EXPECT_EQ(mean.nnz(), 27u);
  EXPECT_EQ(report.sparse_items, 30u);
}

TEST(Norm, is_the_root_of_the_sum_of_squares) {
  std::vector<float> values;
  double squares = 0;
  for (int i = 0; i < 1003; ++i) {
    values.push_back(static_cast<float>(i - 500));
    squares += static_cast<double>(values.back()) * static_cast<double>(values.back());
    if (i % 37 != 0) continue;
    EXPECT_EQ(l2_norm(Stream<float>::dense(std::span<const float>(values))), std::sqrt(squares)) << i;
  }
  const std::vector<float> large{3e30f, 4e30f};
  EXPECT_NEAR(l2_norm(Stream<float>::dense(std::span<const float>(large))), 5e30, 1e24);
  EXPECT_EQ(l2_norm(Stream<float>(10)), 0);
  EXPECT_EQ(l2_norm(convert(Stream<float>::dense(std::span<const float>(values).first(0)), ValueType::f16)), 0);
}

}  // namespace
}  // namespace tulle::test
