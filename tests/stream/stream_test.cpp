#include "tulle/stream/stream.hpp"

#include "stream/model.hpp"

namespace tulle::test {
namespace {

constexpr std::uint64_t kWide = std::uint64_t{1} << 33;

template <class V>
class StreamOf : public ::testing::Test {};
TYPED_TEST_SUITE(StreamOf, ValueTypes);

template <class V>
V value(int number) {
  return static_cast<V>(static_cast<Computed<V>>(number));
}

template <class I, class V>
Stream<V> sorted(std::uint64_t dimension, const std::vector<I>& indices, const std::vector<V>& values) {
  return Stream<V>::from_sorted(dimension, std::span<const I>(indices), std::span<const V>(values));
}

template <class I, class V>
Stream<V> paired(std::uint64_t dimension, const std::vector<I>& indices, const std::vector<V>& values,
                 const Op& op = {}) {
  return Stream<V>::from_pairs(dimension, std::span<const I>(indices), std::span<const V>(values), op);
}

TYPED_TEST(StreamOf, KeepsPairsOfBothIndexWidthsAsGiven) {
  const std::vector<TypeParam> values{value<TypeParam>(3), value<TypeParam>(-4)};
  for (const std::uint64_t dimension : {std::uint64_t{100}, kWide}) {
    const auto narrow = sorted<std::uint32_t>(dimension, {5, 99}, values);
    const auto wide = sorted<std::uint64_t>(dimension, {5, 99}, values);
    EXPECT_EQ(narrow, wide);
    EXPECT_EQ(narrow.nnz(), 2u);
    EXPECT_EQ(narrow.index_width(), index_bytes(dimension));
    EXPECT_EQ(narrow.at(5), values[0]);
    EXPECT_EQ(narrow.at(99), values[1]);
    EXPECT_EQ(narrow.at(50), value<TypeParam>(0));
    narrow.validate();
  }
}

TYPED_TEST(StreamOf, CombinesPairsOfEqualIndexInTheOrderGiven) {
  EXPECT_TRUE(rc::check([] {
    const std::uint64_t dimension = *rc::gen::element<std::uint64_t>(1, 20, 1000, kWide);
    const auto pairs = *rc::gen::container<std::vector<std::pair<std::uint64_t, TypeParam>>>(
        rc::gen::pair(rc::gen::inRange<std::uint64_t>(0, dimension), rc::gen::elementOf(peculiar_values<TypeParam>())));
    const auto ops = ops_on<TypeParam>();
    const Op op = *rc::gen::elementOf(ops);
    std::vector<std::uint64_t> indices;
    std::vector<TypeParam> values;
    std::vector<Model<TypeParam>> singles;
    for (const auto& [index, number] : pairs) {
      indices.push_back(index);
      values.push_back(number);
      singles.push_back({{index, number}});
    }
    const auto stream = paired(dimension, indices, values, op);
    stream.validate();
    RC_ASSERT(same_model(model_of<TypeParam>(stream), folded(singles, op.code())));
  }));
}

TYPED_TEST(StreamOf, ComesBackFromItsDenseForm) {
  EXPECT_TRUE(rc::check([] {
    const auto values = *rc::gen::container<std::vector<TypeParam>>(rc::gen::elementOf(peculiar_values<TypeParam>()));
    const auto ops = ops_on<TypeParam>();
    const Op op = *rc::gen::elementOf(ops);
    const auto stream = Stream<TypeParam>::from_dense(values, op);
    stream.validate();
    RC_ASSERT(!stream.is_dense());
    const auto back = stream.to_vector(op);
    RC_ASSERT(same_values(back, values));
    const auto neutral = static_cast<TypeParam>(op.neutral<Computed<TypeParam>>());
    for (const TypeParam kept : stream.values()) RC_ASSERT(!same_value(kept, neutral));
  }));
}

TYPED_TEST(StreamOf, KeepsWhatThePredicateChooses) {
  std::vector<TypeParam> values;
  for (int i = 0; i < 10; ++i) values.push_back(value<TypeParam>(i));
  const auto stream =
      Stream<TypeParam>::from_predicate(values, [](std::uint64_t index, TypeParam) { return index % 3 == 0; });
  ASSERT_EQ(stream.nnz(), 4u);
  EXPECT_EQ(stream.index_at(0), 0u) << "a zero that was chosen stays";
  EXPECT_EQ(stream.at(9), value<TypeParam>(9));
}

TYPED_TEST(StreamOf, BorrowsTheCallersMemory) {
  const std::vector<std::uint32_t> indices{1, 4};
  const std::vector<TypeParam> values{value<TypeParam>(1), value<TypeParam>(2)};
  const auto sparse =
      Stream<TypeParam>::borrow_sorted(5, std::span<const std::uint32_t>(indices), std::span<const TypeParam>(values));
  EXPECT_EQ(sparse.values().data(), values.data());
  EXPECT_EQ(sparse.template indices<std::uint32_t>().data(), indices.data());
  const auto dense = Stream<TypeParam>::borrow_dense(values);
  EXPECT_EQ(dense.values().data(), values.data());
  EXPECT_TRUE(dense.is_dense());
  EXPECT_NE(sparse.to_owned().values_buffer().data(), sparse.values_buffer().data());
  EXPECT_EQ(sparse.to_owned(), sparse);
  EXPECT_NE(Stream<TypeParam>::dense(values).values().data(), values.data());
}

TYPED_TEST(StreamOf, CanBeEmptyInAnyDimension) {
  for (const std::uint64_t dimension : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{1} << 63}) {
    const Stream<TypeParam> stream(dimension);
    stream.validate();
    EXPECT_EQ(stream.nnz(), 0u);
    EXPECT_EQ(stream.dimension(), dimension);
    EXPECT_EQ(stream.density(), 0.0);
    EXPECT_EQ(stream, sorted<std::uint64_t>(dimension, {}, std::vector<TypeParam>{}));
    EXPECT_EQ(stream, paired<std::uint32_t>(dimension, {}, std::vector<TypeParam>{}));
  }
  EXPECT_EQ(Stream<TypeParam>::from_dense({}).dimension(), 0u);
  EXPECT_TRUE(Stream<TypeParam>(0).to_vector().empty());
  EXPECT_EQ(sorted<std::uint32_t>(1, {0}, std::vector{value<TypeParam>(7)}).to_vector(),
            std::vector{value<TypeParam>(7)});
}

TEST(Stream, KeepsLargeIndicesExactly) {
  const std::vector<std::uint64_t> indices{(1u << 24) + 1, (1u << 24) + 3,    (1u << 31) - 1,
                                           (1u << 31) + 1, 0xfffffffeu,       0xffffffffu,
                                           kWide + 1,      (kWide << 20) + 3, (1ull << 63) - 1};
  const std::vector<float> values(indices.size(), 1.0f);
  const auto stream = sorted(std::uint64_t{1} << 63, indices, values);
  for (std::size_t i = 0; i < indices.size(); ++i) EXPECT_EQ(stream.index_at(i), indices[i]);
  const auto narrow =
      sorted<std::uint64_t, float>(0xffffffffu, {(1u << 24) + 1, (1u << 31) + 1, 0xfffffffe}, {1.0f, 2.0f, 3.0f});
  EXPECT_EQ(narrow.index_width(), 4u);
  EXPECT_EQ(narrow.index_at(0), (1u << 24) + 1);
  EXPECT_EQ(narrow.index_at(2), 0xfffffffeu);
  EXPECT_EQ(index_bytes(std::uint64_t{1} << 32), 8u);
}

TEST(Stream, DropsNothingForBeingSmall) {
  const float tiny = std::numeric_limits<float>::denorm_min();
  const auto stream = Stream<float>::from_dense(std::vector<float>{0.0f, tiny, -tiny, -0.0f, std::nanf("")});
  EXPECT_EQ(stream.nnz(), 4u) << "all but the positive zero, which is the neutral element";
  EXPECT_EQ(stream.at(1), tiny);
  EXPECT_TRUE(std::signbit(stream.at(3)));
  EXPECT_TRUE(std::isnan(stream.at(4)));
}

TEST(Stream, RefusesAnIndexOutsideTheDimension) {
  const auto text = message_of(ErrorKind::bad_input, [] { sorted<std::uint32_t, float>(10, {2, 12}, {1, 2}); });
  EXPECT_CONTAINS(text, "position 1");
  EXPECT_CONTAINS(text, "index 12");
  EXPECT_CONTAINS(text, "N = 10");
  EXPECT_CONTAINS(message_of(ErrorKind::bad_input,
                             [] {
                               paired<std::uint32_t, float>(10, {12, 2}, {1, 2});
                             }),
                  "position 0: index 12");
}

TEST(Stream, RefusesAnIndexThatNarrowingWouldMove) {
  const std::uint64_t beyond = (std::uint64_t{1} << 32) + 3;
  EXPECT_CONTAINS(message_of(ErrorKind::bad_input, [&] { sorted<std::uint64_t, float>(10, {beyond}, {1}); }),
                  "4294967299");
  EXPECT_CONTAINS(message_of(ErrorKind::bad_input, [&] { paired<std::uint64_t, float>(10, {beyond}, {1}); }),
                  "4294967299");
}

TEST(Stream, RefusesUnsortedAndDuplicateIndicesHandedAsSorted) {
  const auto unsorted = message_of(ErrorKind::bad_input, [] {
    sorted<std::uint32_t, float>(10, {2, 1, 0}, {1, 2, 3});
  });
  EXPECT_CONTAINS(unsorted, "position 1: index 1 follows index 2");
  const auto duplicate = message_of(ErrorKind::bad_input, [] {
    sorted<std::uint64_t, float>(10, {2, 4, 4}, {1, 2, 3});
  });
  EXPECT_CONTAINS(duplicate, "position 2: index 4 follows index 4");
  EXPECT_CONTAINS(duplicate, "N = 10");
}

TEST(Stream, FindsOneFaultInALongStreamWhereverItIs) {
  std::vector<std::uint32_t> indices(1000);
  for (std::uint32_t i = 0; i < indices.size(); ++i) indices[i] = 2 * i;
  const std::vector<float> values(indices.size(), 1.0f);
  for (std::size_t fault = 1; fault < indices.size(); fault += 7) {
    auto broken = indices;
    broken[fault] = broken[fault - 1];
    const auto text = message_of(ErrorKind::bad_input, [&] { sorted(2000, broken, values); });
    EXPECT_CONTAINS(text, "position " + std::to_string(fault) + ":");
  }
}

TEST(Stream, RefusesArraysOfDifferentLengths) {
  EXPECT_CONTAINS(message_of(ErrorKind::bad_input,
                             [] {
                               sorted<std::uint32_t, float>(10, {1, 2}, {1});
                             }),
                  "2 indices but 1 values");
}

TEST(Stream, RefusesToBorrowIndicesOfTheWrongWidth) {
  const std::vector<std::uint64_t> indices{1};
  const std::vector<float> values{1};
  const auto borrow = [&] {
    Stream<float>::borrow_sorted(10, std::span<const std::uint64_t>(indices), std::span<const float>(values));
  };
  EXPECT_CONTAINS(message_of(ErrorKind::bad_input, borrow), "8 bytes");
}

TEST(Stream, RefusesToBeReadAsAnotherType) {
  const AnyStream doubles = Stream<double>(4);
  EXPECT_CONTAINS(message_of(ErrorKind::bad_input, [&] { Stream<float>{doubles}; }), "f64");
}

TEST(Stream, RefusesToReadOutsideItsRange) {
  EXPECT_CONTAINS(message_of(ErrorKind::bad_input, [] { Stream<float>(4).at(4); }), "index 4");
}

TEST(Stream, ComparesBitsAndLayout) {
  const auto zero = sorted<std::uint32_t, float>(4, {1}, {0.0f});
  EXPECT_NE(zero, (sorted<std::uint32_t, float>(4, {1}, {-0.0f})));
  EXPECT_NE(zero, (sorted<std::uint32_t, float>(4, {2}, {0.0f})));
  EXPECT_NE(zero, (sorted<std::uint32_t, float>(5, {1}, {0.0f})));
  EXPECT_NE(zero, Stream<float>(4));
  EXPECT_NE(AnyStream::empty(ValueType::f32, 4, {0, 2}), AnyStream::empty(ValueType::f32, 4, {0, 3}));
  EXPECT_EQ(zero, (sorted<std::uint32_t, float>(4, {1}, {0.0f})));
}

TEST(Stream, SwitchesToDenseWherePairsBecomeLarger) {
  EXPECT_EQ(delta(100, 100, ValueType::f32), 50u);
  EXPECT_EQ(delta(100, 100, ValueType::f16), 33u);
  EXPECT_EQ(delta(100, kWide, ValueType::f32), 33u);
  EXPECT_EQ(delta(100, 100, ValueType::f64), 66u);
  EXPECT_EQ(delta(std::uint64_t{1} << 63, std::uint64_t{1} << 63, ValueType::f64), std::uint64_t{1} << 62);
}

}  // namespace
}  // namespace tulle::test
