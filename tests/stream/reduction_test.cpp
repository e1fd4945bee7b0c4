#include "tulle/stream/reduction.hpp"

#include "stream/model.hpp"

namespace tulle::test {
namespace {

constexpr std::uint64_t kWide = std::uint64_t{1} << 33;

template <class V>
class ReduceOn : public ::testing::Test {};
TYPED_TEST_SUITE(ReduceOn, ValueTypes);

/// The values of the whole range that `model` means under `op`.
template <class V>
Model<V> filled(Model<V> model, Range range, const Op& op) {
  const auto neutral = static_cast<V>(op.neutral<Computed<V>>());
  for (std::uint64_t index = range.begin; index < range.end; ++index) model.try_emplace(index, neutral);
  return model;
}

template <class V>
Op arbitrary_op() {
  auto ops = ops_on<V>();
  ops.push_back(first_op<Computed<V>>());
  return *rc::gen::elementOf(ops);
}

template <class V>
void check_result(const AnyStream& result, const Model<V>& expected, const Op& op) {
  result.validate();
  RC_ASSERT(same_model(model_of<V>(result), result.is_dense() ? filled(expected, result.range(), op) : expected));
}

TYPED_TEST(ReduceOn, ReducesTwoStreamsLikeTheModel) {
  EXPECT_TRUE(rc::check([] {
    const std::uint64_t begin = *rc::gen::element<std::uint64_t>(0, kWide);
    const std::uint64_t end = begin + *rc::gen::element<std::uint64_t>(1, 5, 40, 300);
    const std::vector models{*arbitrary_model<TypeParam>(begin, end), *arbitrary_model<TypeParam>(begin, end)};
    const Op op = arbitrary_op<TypeParam>();
    const auto choice = *rc::gen::element(LayoutChoice::automatic, LayoutChoice::sparse, LayoutChoice::dense);
    std::vector<AnyStream> streams;
    for (const auto& model : models) streams.push_back(slice(stream_of(end, model), {begin, end}));
    check_result(reduce(streams[0], streams[1], op, nullptr, choice), folded(models, op.code()), op);
  }));
}

TYPED_TEST(ReduceOn, ReducesSparseWithDenseInTheOrderOfItsOperands) {
  EXPECT_TRUE(rc::check([] {
    const std::uint64_t size = *rc::gen::inRange(1, 100);
    std::vector models{*arbitrary_model<TypeParam>(0, size), *arbitrary_model<TypeParam>(0, size)};
    const Op op = arbitrary_op<TypeParam>();
    const auto dense_operand = *rc::gen::inRange<std::size_t>(0, 3);  // 2: both
    std::vector<AnyStream> streams;
    for (std::size_t s = 0; s < 2; ++s) {
      streams.push_back(stream_of(size, models[s]));
      if (s != dense_operand && dense_operand != 2) continue;
      streams[s] = to_dense(streams[s], op);
      models[s] = filled(models[s], {0, size}, op);
    }
    const auto before = streams;
    check_result(reduce(streams[0], streams[1], op), folded(models, op.code()), op);
    RC_ASSERT(streams == before);
    const AnyStream in_place = reduce(std::move(streams[0]), std::move(streams[1]), op);
    check_result(in_place, folded(models, op.code()), op);
  }));
}

TYPED_TEST(ReduceOn, ReducesManyStreamsLikeTheModel) {
  EXPECT_TRUE(rc::check([] {
    const std::uint64_t begin = *rc::gen::element<std::uint64_t>(0, 1000, kWide);
    const std::uint64_t end = begin + *rc::gen::element<std::uint64_t>(1, 40, 300, 100'000);
    const auto count = *rc::gen::inRange<std::size_t>(1, 7);
    const Op op = arbitrary_op<TypeParam>();
    const auto choice = *rc::gen::element(LayoutChoice::automatic, LayoutChoice::sparse, LayoutChoice::dense);
    std::vector<Model<TypeParam>> models;
    std::vector<AnyStream> streams;
    for (std::size_t s = 0; s < count; ++s) {
      models.push_back(*arbitrary_model<TypeParam>(begin, end));
      streams.push_back(slice(stream_of(end, models.back()), {begin, end}));
      if (end - begin > 300 || *rc::gen::inRange(0, 4) != 0) continue;
      streams.back() = to_dense(streams.back(), op);
      models.back() = filled(models.back(), {begin, end}, op);
    }
    check_result(reduce_many(streams, op, nullptr, choice), folded(models, op.code()), op);
  }));
}

TEST(Reduce, KeepsEntriesThatCancel) {
  const auto sum = reduce(stream_of<float>(10, {{3, 1.5f}}), stream_of<float>(10, {{3, -1.5f}}), Op::sum());
  EXPECT_EQ(sum.nnz(), 1u);
  EXPECT_EQ(Stream<float>(sum).at(3), 0.0f);
}

TEST(Reduce, KeepsTheBitsOfAValueThatOneStreamHolds) {
  const float payload = std::bit_cast<float>(0x7fc12345u);
  const std::vector<AnyStream> streams{stream_of<float>(100, {{3, -0.0f}, {5, payload}, {9, 1.0f}}),
                                       stream_of<float>(100, {{4, -0.0f}, {9, 2.0f}}),
                                       stream_of<float>(100, {{8, payload}})};
  for (const Op& op : ops_on<float>()) {
    for (const LayoutChoice choice : {LayoutChoice::sparse, LayoutChoice::dense}) {
      const Stream<float> many(reduce_many(streams, op, nullptr, choice));
      const Stream<float> two(reduce(streams[0], streams[1], op, nullptr, choice));
      for (const auto& result : {many, two}) {
        EXPECT_EQ(std::bit_cast<std::uint32_t>(result.at(3)), 0x80000000u) << op.name();
        EXPECT_EQ(std::bit_cast<std::uint32_t>(result.at(4)), 0x80000000u) << op.name();
        EXPECT_EQ(std::bit_cast<std::uint32_t>(result.at(5)), 0x7fc12345u) << op.name();
      }
    }
  }
}

TEST(Reduce, ToAMinimumOrMaximumKeepsNaN) {
  const auto nan = stream_of<float>(4, {{0, std::nanf("")}});
  const auto one = stream_of<float>(4, {{0, 1.0f}});
  const auto none = stream_of<float>(4, {});
  for (const Op& op : {Op::min(), Op::max()}) {
    for (const LayoutChoice choice : {LayoutChoice::sparse, LayoutChoice::dense}) {
      for (const auto& [lower, higher] : {std::pair(nan, one), {one, nan}, {none, nan}, {nan, none}, {nan, nan}}) {
        EXPECT_TRUE(std::isnan(Stream<float>(reduce(lower, higher, op, nullptr, choice)).at(0))) << op.name();
        const std::vector<AnyStream> three = {lower, one, higher};
        EXPECT_TRUE(std::isnan(Stream<float>(reduce_many(three, op, nullptr, choice)).at(0))) << op.name();
      }
    }
  }
}

TEST(Reduce, DecidesTiesByTheOrderOfItsOperands) {
  const auto plus = stream_of<float>(4, {{0, 0.0f}});
  const auto minus = stream_of<float>(4, {{0, -0.0f}});
  EXPECT_TRUE(std::signbit(Stream<float>(reduce(minus, plus, Op::max())).at(0)));
  EXPECT_FALSE(std::signbit(Stream<float>(reduce(plus, minus, Op::min())).at(0)));
}

TEST(Reduce, WrapsIntegerSums) {
  const auto most = stream_of<std::int32_t>(4, {{0, std::numeric_limits<std::int32_t>::max()}});
  const auto one = stream_of<std::int32_t>(4, {{0, 1}});
  EXPECT_EQ(Stream<std::int32_t>(reduce(most, one, Op::sum())).at(0), std::numeric_limits<std::int32_t>::min());
}

TEST(Reduce, IsDenseAsSoonAsTheBoundPassesDelta) {
  const std::uint64_t most = delta(100, 100, ValueType::f32);
  Model<float> half;
  for (std::uint64_t i = 0; i < most / 2; ++i) half[i] = 1;
  auto more = half;
  more[99] = 1;
  EXPECT_FALSE(reduce(stream_of(100, half), stream_of(100, half), Op::sum()).is_dense());
  EXPECT_TRUE(reduce(stream_of(100, half), stream_of(100, more), Op::sum()).is_dense());
  EXPECT_FALSE(reduce(stream_of(100, half), stream_of(100, more), Op::sum(), nullptr, LayoutChoice::sparse).is_dense());
}

TEST(Reduce, WorksInPlaceOnlyWhereNobodyElseLooks) {
  const std::vector<float> values(64, 1.0f);
  AnyStream own = Stream<float>::dense(values);
  const std::byte* memory = own.values_buffer().data();
  AnyStream sum = reduce(std::move(own), stream_of<float>(64, {{3, 1.0f}}), Op::sum());
  EXPECT_EQ(sum.values_buffer().data(), memory);
  sum = reduce(stream_of<float>(64, {{3, 1.0f}}), std::move(sum), Op::sum());
  EXPECT_EQ(sum.values_buffer().data(), memory);
  sum = reduce(std::move(sum), Stream<float>::borrow_dense(values), Op::sum());
  EXPECT_EQ(sum.values_buffer().data(), memory);
  EXPECT_EQ(Stream<float>(sum).at(3), 4.0f);
  const AnyStream shared = sum;
  EXPECT_NE(reduce(std::move(sum), stream_of<float>(64, {{3, 1.0f}}), Op::sum()).values_buffer().data(), memory);
  EXPECT_EQ(Stream<float>(shared).at(3), 4.0f);
  EXPECT_EQ(values, std::vector<float>(64, 1.0f)) << "borrowed memory is not written";
}

TEST(Reduce, LetsAUserOpWriteOverItsLowerOperandOnly) {
  const Op op = Op::from_user_op({"add in two passes", ValueType::f32, scalar_bytes(0.0f),
                                  [](void* result, const void* lower, const void* higher, std::size_t count) {
                                    auto* sums = static_cast<float*>(result);
                                    std::copy_n(static_cast<const float*>(lower), count, sums);
                                    for (std::size_t i = 0; i < count; ++i)
                                      sums[i] += static_cast<const float*>(higher)[i];
                                  }});
  const std::vector<float> ones(8, 1.0f);
  const std::vector<float> twos(8, 2.0f);
  const AnyStream sum = reduce(Stream<float>::borrow_dense(ones), Stream<float>::dense(twos), op);
  EXPECT_EQ(Stream<float>(sum).to_vector(), std::vector<float>(8, 3.0f));
}

TEST(Reduce, RefusesStreamsThatDoNotMatch) {
  const auto dimensions =
      message_of(ErrorKind::bad_input, [] { reduce(Stream<float>(4), Stream<float>(5), Op::sum()); });
  EXPECT_CONTAINS(dimensions, "N = 4");
  EXPECT_CONTAINS(dimensions, "N = 5");
  message_of(ErrorKind::bad_input, [] { reduce(Stream<float>(4), Stream<double>(4), Op::sum()); });
  message_of(ErrorKind::bad_input, [] { reduce(Stream<float>(4), Stream<float>(4), Op::bit_and()); });
}

TEST(Reduce, SumsHalvesInF32AndSaysWhatOverflowed) {
  const auto big = stream_of<Half>(100, {{1, Half(60000.0f)}, {2, Half(1.0f)}, {3, Half(HUGE_VALF)}});
  KernelReport report;
  const Stream<Half> sum(reduce(big, big, Op::sum(), &report));
  EXPECT_EQ(report.overflowed, 1u) << "an infinity that was there before is not an overflow";
  EXPECT_EQ(static_cast<float>(sum.at(1)), HUGE_VALF);
  const auto back = stream_of<Half>(100, {{1, Half(-60000.0f)}});
  report = {};
  const std::vector<AnyStream> streams{big, big, back};
  EXPECT_EQ(static_cast<float>(Stream<Half>(reduce_many(streams, Op::sum(), &report)).at(1)), 60000.0f);
  EXPECT_EQ(report.overflowed, 0u) << "rounded once, after the last stream";
}

TEST(Reduce, ReportsItemsBySizesAlone) {
  const auto a = stream_of<float>(100, {{1, 1.0f}, {2, 1.0f}});
  const auto b = stream_of<float>(100, {{1, 1.0f}});
  KernelReport report;
  reduce(a, b, Op::sum(), &report);
  EXPECT_EQ(report.sparse_items, 3u);
  EXPECT_EQ(report.dense_items, 0u);
  report = {};
  reduce(a, b, Op::sum(), &report, LayoutChoice::dense);
  EXPECT_EQ(report.sparse_items, 3u);
  EXPECT_EQ(report.dense_items, 100u);
  report = {};
  reduce(a, to_dense(b, Op::sum()), Op::sum(), &report);
  EXPECT_EQ(report.sparse_items, 2u);
  EXPECT_EQ(report.dense_items, 100u);
}

TEST(ReduceMany, OfOneStreamSharesItsMemory) {
  const AnyStream stream = stream_of<float>(100, {{1, 1.0f}});
  const AnyStream same_stream = reduce_many({&stream, 1}, Op::sum());
  EXPECT_EQ(same_stream.values_buffer().data(), stream.values_buffer().data());
  EXPECT_TRUE(reduce_many({&stream, 1}, Op::sum(), nullptr, LayoutChoice::dense).is_dense());
}

TEST(ReduceMany, WritesADenseResultToItsLanding) {
  const std::vector<AnyStream> floats{stream_of<float>(100, {{1, 1.0f}}),
                                      stream_of<float>(100, {{1, 2.0f}, {7, 3.0f}})};
  Buffer landing = Buffer::allocate(400);
  const AnyStream sum = reduce_many(floats, Op::sum(), nullptr, LayoutChoice::dense, landing);
  EXPECT_EQ(sum.values_buffer().data(), landing.data());
  EXPECT_EQ(landing.as<float>()[1], 3.0f);
  EXPECT_EQ(landing.as<float>()[50], 0.0f);
  const std::vector<AnyStream> halves{stream_of<Half>(200, {{1, Half(1.0f)}})};
  EXPECT_EQ(reduce_many(halves, Op::sum(), nullptr, LayoutChoice::dense, landing).values_buffer().data(),
            landing.data());
  EXPECT_EQ(landing.as<Half>()[1], Half(1.0f));
}

TEST(ReduceMany, ReducesHundredsOfStreams) {
  std::vector<Model<double>> models;
  std::vector<AnyStream> streams;
  for (std::uint64_t s = 0; s < 300; ++s) {
    models.push_back(
        {{s, 0.1 * static_cast<double>(s)}, {50'000, 0.1}, {99'999 - s, 1.0 / (1.0 + static_cast<double>(s))}});
    streams.push_back(stream_of(100'000, models.back()));
  }
  const auto expected = folded(models, OpCode::sum);
  EXPECT_TRUE(same_model(model_of<double>(reduce_many(streams, Op::sum())), expected));
  streams.assign(300, Stream<double>(100'000));
  EXPECT_EQ(reduce_many(streams, Op::sum()).nnz(), 0u);
}

TEST(ReduceMany, StaysSparseWhereTheStreamsOverlapThoughTheBoundSaysDense) {
  for (const std::uint64_t dimension : {std::uint64_t{1000}, (std::uint64_t{1} << 33)}) {
    std::map<std::uint64_t, float> model;
    for (std::uint64_t i = 0; i < 100; ++i) model[9 * i] = 1.0f;
    const AnyStream whole = stream_of(dimension, model);
    const std::vector<AnyStream> same(40, slice(whole, {0, 1000}));  // the bound is 4000, delta at most 500
    EXPECT_EQ(reduce_many(same, Op::sum()).layout(), Layout::sparse);
    EXPECT_EQ(reduce_many(same, Op::sum()).nnz(), 100u);
  }
  std::vector<AnyStream> different;
  for (std::uint64_t s = 0; s < 6; ++s) {
    std::map<std::uint64_t, float> model;
    for (std::uint64_t i = 0; i < 100; ++i) model[10 * i + s] = 1.0f;
    different.push_back(stream_of<float>(1000, model));
  }
  EXPECT_EQ(reduce_many(different, Op::sum()).layout(), Layout::dense);
}

TEST(ReduceMany, NeedsNoMemoryForAHugeRange) {
  const std::uint64_t huge = std::uint64_t{1} << 63;
  const std::vector<AnyStream> streams{stream_of<float>(huge, {{0, 1.0f}, {huge - 1, 1.0f}}),
                                       stream_of<float>(huge, {{5, 1.0f}}),
                                       stream_of<float>(huge, {{0, 1.0f}, {huge / 2, 1.0f}})};
  const AnyStream sum = reduce_many(streams, Op::sum());
  EXPECT_EQ(sum.nnz(), 4u);
  EXPECT_EQ(Stream<float>(sum).at(0), 2.0f);
  EXPECT_EQ(Stream<float>(sum).at(huge - 1), 1.0f);
  EXPECT_EQ(reduce(streams[0], streams[1], Op::sum()).nnz(), 3u);
}

TEST(ReduceMany, RefusesADenseResultThatNoMachineHolds) {
  const std::uint64_t huge = std::uint64_t{1} << 62;
  const std::vector<AnyStream> streams(3, Stream<float>(huge));
  const auto text =
      message_of(ErrorKind::bad_input, [&] { reduce_many(streams, Op::sum(), nullptr, LayoutChoice::dense); });
  EXPECT_CONTAINS(text, "dense form of 4611686018427387904 values");
}

// Three streams of 30 of 100 might have 90 and must be counted; two are taken for dense, and three of 10 for sparse.
TEST(ReduceMany, ReportsTheIndicesThatItCounts) {
  const auto sparse_items = [](std::size_t streams, std::uint64_t nnz) {
    const AnyStream stream = AnyStream::phantom(ValueType::f32, 100, {0, 100}, Layout::sparse, nnz);
    KernelReport report;
    reduce_many(std::vector<AnyStream>(streams, stream), Op::sum(), &report);
    return report.sparse_items;
  };
  EXPECT_EQ(sparse_items(3, 30), 90u + 30u);
  EXPECT_EQ(sparse_items(2, 30), 60u);
  EXPECT_EQ(sparse_items(3, 10), 30u);
}

}  // namespace
}  // namespace tulle::test
