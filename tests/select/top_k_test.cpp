#include "tulle/select/top_k.hpp"

#include "select/reference.hpp"

namespace tulle::test {
namespace {

template <class V>
class TopK : public ::testing::Test {};
TYPED_TEST_SUITE(TopK, ValueTypes);

// Sizes with and without a sample, with and without a last word that is not full; many and few to be taken.
struct Case {
  std::uint64_t count;
  std::uint64_t k;
};
constexpr Case kCases[] = {{0, 3},      {1, 0},       {1, 1},         {1, 5},        {63, 7},
                           {64, 64},    {65, 10},     {300, 20},      {1000, 999},   {999, 2000},
                           {17000, 37}, {20000, 500}, {17003, 16000}, {16500, 40000}};

template <class V>
void expect_split(const SplitStream& split, const AnyStream& whole, const Model<V>& kept, const Model<V>& rest) {
  for (const AnyStream* part : {&split.kept, &split.rest}) {
    EXPECT_NO_THROW(part->validate());
    EXPECT_EQ(part->type(), whole.type());
    EXPECT_EQ(part->dimension(), whole.dimension());
    EXPECT_EQ(part->range(), whole.range());
    EXPECT_FALSE(part->is_dense());
  }
  EXPECT_TRUE(same_model(model_of<V>(split.kept), kept));
  EXPECT_TRUE(same_model(model_of<V>(split.rest), rest));
}

TYPED_TEST(TopK, SplitsDenseStreamsAsSortingDoes) {
  for (const auto& [count, k] : kCases) {
    SCOPED_TRACE(::testing::Message() << count << " values, k = " << k);
    const std::vector<TypeParam> values = mixed_values<TypeParam>(count, count + k);
    const AnyStream stream = Stream<TypeParam>::dense(values);
    const Model<TypeParam> model = non_zeros(values);
    const Model<TypeParam> top = reference_top_k(model, k);
    expect_split(split_top_k(stream, k), stream, top, without(model, top));
  }
}

TYPED_TEST(TopK, SplitsSparseStreamsAsSortingDoes) {
  EXPECT_TRUE(rc::check("split_top_k", [] {
    const auto model = *arbitrary_model<TypeParam>(0, 1000);
    const auto k = *rc::gen::inRange<std::uint64_t>(0, model.size() + 3);
    const AnyStream stream = stream_of<TypeParam>(1000, model);
    const Model<TypeParam> top = reference_top_k(model, k);
    expect_split(split_top_k(stream, k), stream, top, without(model, top));
  }));
}

TYPED_TEST(TopK, SplitsWideIndicesAndPartialRanges) {
  const std::uint64_t dimension = std::uint64_t{1} << 33;
  const Model<TypeParam> model{{5, TypeParam(1)}, {dimension - 2, TypeParam(3)}, {dimension - 1, TypeParam(2)}};
  const AnyStream stream = stream_of<TypeParam>(dimension, model);
  const Model<TypeParam> top = reference_top_k(model, 2);
  expect_split(split_top_k(stream, 2), stream, top, without(model, top));
  const AnyStream upper = slice(stream, {dimension - 2, dimension});
  expect_split<TypeParam>(split_top_k(upper, 1), upper, {{dimension - 2, TypeParam(3)}},
                          {{dimension - 1, TypeParam(2)}});
}

TYPED_TEST(TopK, SplitsAtAThreshold) {
  const std::vector<TypeParam> values = mixed_values<TypeParam>(5000, 3);
  const AnyStream stream = Stream<TypeParam>::dense(values);
  const Model<TypeParam> model = non_zeros(values);
  for (const double threshold : {0.0, 1e-9, 1.0, 7.0, 250.5, 1e12}) {
    Model<TypeParam> kept = model;
    std::erase_if(kept, [&](const auto& pair) { return magnitude(pair.second) < threshold; });
    expect_split(split_at_threshold(stream, threshold), stream, kept, without(model, kept));
    expect_split(split_at_threshold(stream_of<TypeParam>(5000, model), threshold), stream, kept, without(model, kept));
  }
}

TYPED_TEST(TopK, SplitsPhantomsByCount) {
  const AnyStream phantom = AnyStream::phantom(kValueTypeOf<TypeParam>, 1000, {0, 1000}, Layout::sparse, 100);
  EXPECT_EQ(split_top_k(phantom, 30).kept.nnz(), 30u);
  EXPECT_EQ(split_top_k(phantom, 30).rest.nnz(), 70u);
  EXPECT_TRUE(split_top_k(phantom, 30).rest.is_phantom());
  EXPECT_EQ(split_top_k(phantom, 300).rest.nnz(), 0u);
}

TYPED_TEST(TopK, KthMagnitudeIsThatOfTheSortedValues) {
  const std::vector<TypeParam> values = mixed_values<TypeParam>(30000, 4);
  const AnyStream stream = Stream<TypeParam>::dense(values);
  const Model<TypeParam> model = non_zeros(values);
  const std::vector<std::uint64_t> order = by_magnitude(model);
  for (const std::uint64_t k : {std::uint64_t{1}, std::uint64_t{2}, std::uint64_t{300}, std::uint64_t{9999}}) {
    EXPECT_EQ(kth_magnitude(stream, k), static_cast<double>(magnitude(model.at(order[k - 1])))) << k;
  }
  EXPECT_EQ(kth_magnitude(stream, order.size() + 1), 0);
}

template <class V>
void expect_taken(const AnyStream& taken, const std::vector<V>& before, const std::vector<V>& after,
                  const Model<V>& expected, Range range) {
  EXPECT_NO_THROW(taken.validate());
  EXPECT_EQ(taken.range(), range);
  EXPECT_TRUE(same_model(model_of<V>(taken), expected));
  for (std::size_t i = 0; i < before.size(); ++i) {
    ASSERT_TRUE(same_value(after[i], expected.contains(i) ? V{} : before[i])) << i;
  }
}

TYPED_TEST(TopK, TakesTheLargestOfARangeAndLeavesTheRest) {
  for (const auto& [count, k] : kCases) {
    for (const Range range : {Range{0, count}, Range{count / 3, count - count / 5}}) {
      SCOPED_TRACE(::testing::Message() << "[" << range.begin << ", " << range.end << ") of " << count
                                        << ", k = " << k);
      const std::vector<TypeParam> before = mixed_values<TypeParam>(count, count + k);
      std::vector<TypeParam> after = before;
      const AnyStream taken = take_top_k(std::span(after), range, k);
      const Model<TypeParam> expected = reference_top_k(non_zeros(std::span<const TypeParam>(before), range), k);
      expect_taken(taken, before, after, expected, range);
    }
  }
}

TYPED_TEST(TopK, TakesWhatReachesAThresholdAndLeavesTheRest) {
  const std::vector<TypeParam> before = mixed_values<TypeParam>(20011, 5);
  const Range range{11, 20000};
  for (const double threshold : {0.0, 7.0, 250.5}) {
    std::vector<TypeParam> after = before;
    const AnyStream taken = take_above(std::span(after), range, threshold);
    Model<TypeParam> expected = non_zeros(std::span<const TypeParam>(before), range);
    std::erase_if(expected, [&](const auto& pair) { return magnitude(pair.second) < threshold; });
    expect_taken(taken, before, after, expected, range);
  }
}

TYPED_TEST(TopK, TakingFromABufferIsTheSame) {
  std::vector<TypeParam> values = mixed_values<TypeParam>(3000, 6);
  Buffer buffer = Buffer::copy_of(std::as_bytes(std::span(values)));
  const ValueType type = kValueTypeOf<TypeParam>;
  EXPECT_EQ(take_top_k(type, buffer, 3000, {100, 2900}, 50), take_top_k(std::span(values), {100, 2900}, 50));
  EXPECT_EQ(take_above(type, buffer, 3000, {0, 3000}, 200), take_above(std::span(values), {0, 3000}, 200));
  EXPECT_TRUE(std::ranges::equal(buffer.bytes(), std::as_bytes(std::span(values))));
}

TYPED_TEST(TopK, AddIntoBringsBackWhatWasTaken) {
  const std::vector<TypeParam> before = mixed_values<TypeParam>(3000, 7);
  Buffer buffer = Buffer::copy_of(std::as_bytes(std::span(before)));
  const ValueType type = kValueTypeOf<TypeParam>;
  const AnyStream taken = take_top_k(type, buffer, 3000, {100, 2900}, 500);
  add_into(type, buffer, taken);
  EXPECT_TRUE(
      same_values(std::vector<TypeParam>(buffer.as<TypeParam>().begin(), buffer.as<TypeParam>().end()), before));
}

TYPED_TEST(TopK, AddIntoScales) {
  using C = Computed<TypeParam>;
  const std::vector<TypeParam> addends{TypeParam(C{4}), TypeParam(C{-8}), TypeParam(C{12})};
  const AnyStream dense = slice(Stream<TypeParam>::dense(addends), {1, 3});
  for (const AnyStream& stream : {dense, to_sparse(dense, Op::sum())}) {
    std::vector<TypeParam> values(3, TypeParam(C{1}));
    Buffer buffer = Buffer::copy_of(std::as_bytes(std::span(values)));
    add_into(kValueTypeOf<TypeParam>, buffer, stream, 0.25);
    const std::vector<TypeParam> expected{TypeParam(C{1}), TypeParam(C{-1}), TypeParam(C{4})};
    EXPECT_TRUE(std::ranges::equal(buffer.as<TypeParam>(), expected));
  }
}

TYPED_TEST(TopK, DoesNotDependOnTheNumberOfThreads) {
  const std::vector<TypeParam> before = mixed_values<TypeParam>(700000, 8);
  std::vector<TypeParam> serial = before;
  const AnyStream expected = take_top_k(std::span(serial), {5, 699999}, 7000, 1);
  for (const int threads : {0, 2, 7}) {
    std::vector<TypeParam> parallel = before;
    EXPECT_EQ(take_top_k(std::span(parallel), {5, 699999}, 7000, threads), expected) << threads;
    EXPECT_TRUE(same_values(parallel, serial)) << threads;
  }
}

}  // namespace
}  // namespace tulle::test
