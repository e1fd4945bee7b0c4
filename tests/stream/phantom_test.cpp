// Streams without data: every function gives the sizes that real ones are expected to give.
#include "stream/model.hpp"

namespace tulle::test {
namespace {

AnyStream phantom(std::uint64_t dimension, std::uint64_t nnz, ValueType type = ValueType::f32) {
  return AnyStream::phantom(type, dimension, {0, dimension}, Layout::sparse, nnz);
}

TEST(Phantom, HasTheBytesOfARealStream) {
  EXPECT_EQ(phantom(1000, 10).bytes(), 80u);
  EXPECT_EQ(phantom(std::uint64_t{1} << 40, 10, ValueType::f64).bytes(), 160u);
  const AnyStream dense = AnyStream::phantom(ValueType::f16, 1000, {100, 200}, Layout::dense, 0);
  EXPECT_EQ(dense.nnz(), 100u);
  EXPECT_EQ(dense.bytes(), 200u);
  EXPECT_TRUE(dense.is_phantom());
  EXPECT_EQ(dense.values_buffer().data(), nullptr);
  dense.validate();
}

TEST(Phantom, ExpectsTheUnionOfRandomSets) {
  EXPECT_EQ(expected_union(10, 10, 100), 19u);
  EXPECT_EQ(expected_union(100, 100, 100), 100u);
  EXPECT_EQ(expected_union(0, 7, 100), 7u);
  EXPECT_EQ(expected_union(0, 0, 0), 0u);
  const std::uint64_t huge = std::uint64_t{1} << 63;
  EXPECT_EQ(expected_union(huge / 2, huge / 2, huge), huge / 4 * 3);
}

TEST(Phantom, ReducesByExpectation) {
  KernelReport report;
  const AnyStream sum = reduce(phantom(1000, 100), phantom(1000, 100), Op::sum(), &report);
  EXPECT_TRUE(sum.is_phantom());
  EXPECT_EQ(sum.nnz(), 190u);
  EXPECT_EQ(report.sparse_items, 200u);
  EXPECT_TRUE(reduce(phantom(1000, 300), phantom(1000, 300), Op::sum()).is_dense()) << "delta as for real streams";
  const std::vector<AnyStream> streams(3, phantom(1000, 100));
  EXPECT_EQ(reduce_many(streams, Op::sum()).nnz(), 271u);
  EXPECT_TRUE(reduce_many(streams, Op::sum(), nullptr, LayoutChoice::dense).is_dense());
}

TEST(Phantom, MakesAReductionWithARealStreamPhantom) {
  EXPECT_TRUE(reduce(phantom(1000, 100), Stream<float>(1000), Op::sum()).is_phantom());
  EXPECT_TRUE(reduce(Stream<float>(1000), phantom(1000, 100), Op::sum()).is_phantom());
}

TEST(Phantom, CutsIntoSlicesThatAddUp) {
  const AnyStream stream = phantom(1000, 7);
  std::vector<AnyStream> blocks;
  for (std::uint64_t begin = 0; begin < 1000; begin += 125) blocks.push_back(slice(stream, {begin, begin + 125}));
  std::uint64_t total = 0;
  for (const AnyStream& block : blocks) total += block.nnz();
  EXPECT_EQ(total, 7u);
  EXPECT_EQ(concatenate(blocks, Op::sum()), stream);
  const AnyStream dense = to_dense(stream, Op::sum());
  EXPECT_EQ(slice(dense, {100, 300}).nnz(), 200u);
  EXPECT_TRUE(slice(dense, {100, 300}).is_phantom());
}

TEST(Phantom, ChangesLayoutAndType) {
  const AnyStream stream = phantom(1000, 10, ValueType::f16);
  EXPECT_EQ(to_dense(stream, Op::sum()).bytes(), 2000u);
  EXPECT_EQ(to_sparse(to_dense(stream, Op::sum()), Op::sum()).nnz(), 1000u);
  EXPECT_EQ(convert(stream, ValueType::f32).bytes(), 80u);
  EXPECT_TRUE(convert(stream, ValueType::f32).is_phantom());
}

TEST(Phantom, MayBeLargerThanAnyMachine) {
  const std::uint64_t huge = std::uint64_t{1} << 50;
  EXPECT_EQ(to_dense(phantom(huge, 5), Op::sum()).bytes(), huge * 4);
}

}  // namespace
}  // namespace tulle::test
