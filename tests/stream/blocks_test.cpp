#include "stream/model.hpp"

namespace tulle::test {
namespace {

template <class V>
class BlocksOf : public ::testing::Test {};
TYPED_TEST_SUITE(BlocksOf, ValueTypes);

std::vector<Range> arbitrary_blocks(Range range) {
  auto cuts = *rc::gen::container<std::vector<std::uint64_t>>(rc::gen::inRange(range.begin, range.end + 1));
  cuts.push_back(range.end);
  std::sort(cuts.begin(), cuts.end());
  std::vector<Range> blocks;
  std::uint64_t begin = range.begin;
  for (const std::uint64_t cut : cuts) blocks.push_back({std::exchange(begin, cut), cut});
  return blocks;
}

TYPED_TEST(BlocksOf, ComesBackFromItsSlices) {
  EXPECT_TRUE(rc::check([] {
    const std::uint64_t offset = *rc::gen::element<std::uint64_t>(0, std::uint64_t{1} << 33);
    const Range range{offset, offset + *rc::gen::inRange<std::uint64_t>(1, 200)};
    AnyStream stream = slice(stream_of(range.end, *arbitrary_model<TypeParam>(range.begin, range.end)), range);
    if (*rc::gen::arbitrary<bool>()) stream = to_dense(stream, Op::sum());
    std::vector<AnyStream> blocks;
    for (const Range block : arbitrary_blocks(range)) {
      blocks.push_back(slice(stream, block));
      blocks.back().validate();
      RC_ASSERT(blocks.back().range() == block);
    }
    RC_ASSERT(concatenate(blocks, Op::sum(), nullptr, LayoutChoice::sparse) == stream);
    RC_ASSERT(concatenate(blocks, Op::sum(), nullptr, LayoutChoice::dense) == to_dense(stream, Op::sum()));
  }));
}

TEST(Slice, SharesTheMemoryOfItsStream) {
  const auto stream = stream_of<float>(100, {{10, 1.0f}, {20, 2.0f}, {30, 3.0f}});
  const AnyStream part = slice(stream, {20, 30});
  EXPECT_EQ(part.nnz(), 1u);
  EXPECT_EQ(part.values_buffer().data(), stream.values_buffer().data() + sizeof(float));
  EXPECT_EQ(slice(stream, {11, 20}).nnz(), 0u);
  EXPECT_EQ(slice(stream, {20, 20}).nnz(), 0u);
  const AnyStream dense = to_dense(stream, Op::sum());
  EXPECT_EQ(slice(dense, {20, 30}).values_buffer().data(), dense.values_buffer().data() + 20 * sizeof(float));
}

TEST(Concatenate, MixesDenseAndSparseBlocksAndFillsWithTheNeutralElement) {
  const std::vector<AnyStream> blocks{slice(stream_of<float>(10, {{1, 5.0f}}), {0, 4}),
                                      to_dense(slice(stream_of<float>(10, {{6, 7.0f}}), {4, 8}), Op::prod()),
                                      AnyStream::empty(ValueType::f32, 10, {8, 10})};
  KernelReport report;
  const AnyStream joined = concatenate(blocks, Op::prod(), &report);
  EXPECT_TRUE(joined.is_dense());
  EXPECT_EQ(Stream<float>(joined).to_vector(), (std::vector<float>{1, 5, 1, 1, 1, 1, 7, 1, 1, 1}));
  EXPECT_EQ(report.sparse_items, 1u);
}

TEST(Concatenate, LeavesBlocksWhereTheyLanded) {
  Buffer landing = Buffer::allocate(8 * sizeof(float));
  std::fill_n(reinterpret_cast<float*>(landing.data_for_landing()), 8, 3.0f);
  const std::vector<AnyStream> blocks{AnyStream::dense(ValueType::f32, 8, {0, 4}, landing.slice(0, 16)),
                                      Stream<float>(AnyStream::dense(ValueType::f32, 8, {4, 8}, landing.slice(0, 16)))};
  const AnyStream joined = concatenate(blocks, Op::sum(), nullptr, LayoutChoice::dense, {.dense = landing});
  EXPECT_EQ(joined.values_buffer().data(), landing.data());
  EXPECT_EQ(Stream<float>(joined).to_vector(), std::vector<float>(8, 3.0f));
}

TEST(Concatenate, ReportsWhatItCopiesAlone) {
  const auto items = [](Layout layout, Buffer landing) {
    const std::vector<AnyStream> blocks = {AnyStream::phantom(ValueType::f32, 100, {0, 60}, Layout::dense, 60),
                                           AnyStream::phantom(ValueType::f32, 100, {60, 100}, layout, 40)};
    KernelReport report;
    concatenate(blocks, Op::sum(), &report, LayoutChoice::dense, {.dense = std::move(landing)});
    return std::pair(report.sparse_items, report.dense_items);
  };
  EXPECT_EQ(items(Layout::dense, {}), std::pair(std::uint64_t{0}, std::uint64_t{100}));
  EXPECT_EQ(items(Layout::dense, Buffer::phantom(400)), std::pair(std::uint64_t{0}, std::uint64_t{0}));
  EXPECT_EQ(items(Layout::sparse, Buffer::phantom(400)), std::pair(std::uint64_t{40}, std::uint64_t{40}));
}

TEST(Concatenate, TurnsDenseByDelta) {
  Model<float> full;
  for (std::uint64_t i = 0; i < 6; ++i) full[i] = 1;
  const auto stream = stream_of(10, full);
  const std::vector<AnyStream> blocks{slice(stream, {0, 5}), slice(stream, {5, 10})};
  EXPECT_TRUE(concatenate(blocks, Op::sum()).is_dense());
  EXPECT_FALSE(concatenate(blocks, Op::sum(), nullptr, LayoutChoice::sparse).is_dense());
}

TEST(Concatenate, RefusesBlocksThatDoNotFollowOneAnother) {
  const auto stream = stream_of<float>(10, {{1, 1.0f}});
  const std::vector<AnyStream> blocks{slice(stream, {0, 4}), slice(stream, {5, 10})};
  EXPECT_CONTAINS(message_of(ErrorKind::bad_input, [&] { concatenate(blocks, Op::sum()); }), "follow");
}

TEST(ToDense, RefusesASizeThatNoMachineHolds) {
  const auto text =
      message_of(ErrorKind::bad_input, [] { to_dense(Stream<double>(std::uint64_t{1} << 63), Op::sum()); });
  EXPECT_CONTAINS(text, "dense form of 9223372036854775808 values");
}

TEST(ToDense, GivesItselfWhereAlreadyDense) {
  const AnyStream dense = Stream<float>::dense(std::vector<float>{1, 2});
  EXPECT_EQ(to_dense(dense, Op::sum()).values_buffer().data(), dense.values_buffer().data());
  const AnyStream sparse = stream_of<float>(10, {{1, 1.0f}});
  EXPECT_EQ(to_sparse(sparse, Op::sum()).values_buffer().data(), sparse.values_buffer().data());
}

}  // namespace
}  // namespace tulle::test
