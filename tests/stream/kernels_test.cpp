// The kernels against each other, on sizes that cross their tiles and lanes: bit for bit.
#include "stream/kernels.hpp"

#include "stream/model.hpp"
#include "tulle/base/philox.hpp"

namespace tulle::test {
namespace {

/// About `density * dimension` values whose sum depends on the order. `clustered`: in stretches, not evenly.
template <class V>
AnyStream random_stream(std::uint64_t dimension, double density, std::uint64_t seed, bool clustered = false) {
  Philox random(seed);
  Model<V> model;
  const auto count = static_cast<std::uint64_t>(density * static_cast<double>(dimension));
  for (std::uint64_t i = 0, at = 0; i < count; ++i) {
    at = clustered && random.below(50) != 0 ? (at + 1) % dimension : random.below(dimension);
    model[at] = static_cast<V>((random.uniform() - 0.5) * 1000);
  }
  return stream_of(dimension, model);
}

template <class V>
class Kernels : public ::testing::Test {};
TYPED_TEST_SUITE(Kernels, ComputeTypes);

/// Five streams in the first 100'000 positions of `dimension`.
template <class V>
std::vector<AnyStream> five_streams(std::uint64_t dimension, double density) {
  std::vector<AnyStream> streams;
  for (std::uint64_t seed = 0; seed < 5; ++seed) {
    const AnyStream narrow = random_stream<V>(100'000, density, seed, density == 0.01);
    streams.push_back(stream_of(dimension, model_of<V>(narrow)));
  }
  return streams;
}

AnyStream merged_pairwise(std::span<const AnyStream> streams, const Op& op) {
  AnyStream result = streams[0];
  for (const AnyStream& stream : streams.subspan(1)) result = merge(result, stream, op);
  return result;
}

void check_agreement(std::span<const AnyStream> streams, const Op& op, const AnyStream& expected) {
  EXPECT_EQ(merged_pairwise(streams, op), expected) << op.name();
  EXPECT_EQ(accumulate_sparse(streams, op), expected) << op.name();
  EXPECT_EQ(merge_many(streams, op), expected) << op.name();
  const Range head{0, 100'000};
  std::vector<AnyStream> heads;
  for (const AnyStream& stream : streams) heads.push_back(slice(stream, head));
  EXPECT_EQ(reduce_many(heads, op, nullptr, LayoutChoice::dense), to_dense(slice(expected, head), op)) << op.name();
}

TYPED_TEST(Kernels, AgreeBitForBitOnEveryTarget) {
  for (const std::uint64_t dimension : {std::uint64_t{100'000}, std::uint64_t{1} << 40}) {
    for (const double density : {1e-4, 0.01, 0.2}) {
      const auto streams = five_streams<TypeParam>(dimension, density);
      std::vector<Model<TypeParam>> models;
      for (const AnyStream& stream : streams) models.push_back(model_of<TypeParam>(stream));
      for (const Op& op : {Op::sum(), Op::min(), Op::prod()}) {
        const AnyStream expected = stream_of(dimension, folded(models, op.code()));
        for_each_target([&] { check_agreement(streams, op, expected); });
      }
    }
  }
}

TYPED_TEST(Kernels, MergeStreamsOfEqualAndOfVeryDifferentSizes) {
  for (const double density : {0.0, 1e-5, 1e-4, 1e-3, 1e-2, 0.2, 1.0}) {
    for (const bool clustered : {false, true}) {
      const AnyStream a = random_stream<TypeParam>(50'000, 0.2, 1, clustered);
      const AnyStream b = random_stream<TypeParam>(50'000, density, 2, clustered);
      const Op op = first_op<TypeParam>();
      for (const auto& [lower, higher] : {std::pair(a, b), std::pair(b, a), std::pair(b, b)}) {
        const std::vector models{model_of<TypeParam>(lower), model_of<TypeParam>(higher)};
        EXPECT_TRUE(same_model(model_of<TypeParam>(merge(lower, higher, Op::sum())), folded(models, OpCode::sum)));
        EXPECT_TRUE(same_model(model_of<TypeParam>(merge(lower, higher, op)), folded(models, OpCode::user)));
      }
    }
  }
}

TYPED_TEST(Kernels, SortLongUnsortedPairs) {
  Philox random(3);
  std::vector<std::uint32_t> indices;
  std::vector<TypeParam> values;
  std::vector<Model<TypeParam>> singles;
  for (int i = 0; i < 20'000; ++i) {
    indices.push_back(static_cast<std::uint32_t>(random.below(5'000)));
    values.push_back(static_cast<TypeParam>((random.uniform() - 0.5) * 1000));
    singles.push_back({{indices.back(), values.back()}});
  }
  const auto stream =
      Stream<TypeParam>::from_pairs(5'000, std::span<const std::uint32_t>(indices), std::span<const TypeParam>(values));
  EXPECT_TRUE(same_model(model_of<TypeParam>(stream), folded(singles, OpCode::sum)));
}

// Where a position plus the length of a tile is no number any more.
TEST(Kernels, ReachTheLastIndexThatThereIs) {
  for (const std::uint64_t dimension : {~std::uint64_t{0}, std::uint64_t{1} << 32, (std::uint64_t{1} << 32) - 1}) {
    std::vector<AnyStream> streams;
    for (std::uint64_t s = 0; s < 5; ++s) {
      Model<float> model;
      for (std::uint64_t back = 1 + s; back < 40'000; back += 3) model[dimension - back] = static_cast<float>(back + s);
      streams.push_back(stream_of(dimension, model));
    }
    ASSERT_TRUE(prefers_tiles(streams));
    const AnyStream sum = merge_many(streams, Op::sum());
    EXPECT_EQ(accumulate_sparse(streams, Op::sum()), sum);
    EXPECT_EQ(reduce_many(streams, Op::sum()), sum);
    EXPECT_TRUE(union_exceeds(streams, sum.nnz() - 1));
    EXPECT_FALSE(union_exceeds(streams, sum.nnz()));
  }
}

TEST(Kernels, PreferTilesOnlyWhereTheRangeIsFullEnough) {
  const std::vector<AnyStream> full(4, random_stream<float>(100'000, 0.1, 1));
  const std::vector<AnyStream> bare(4, stream_of<float>(std::uint64_t{1} << 40, {{0, 1.0f}, {1ull << 39, 1.0f}}));
  EXPECT_TRUE(prefers_tiles(full));
  EXPECT_FALSE(prefers_tiles(bare));
}

}  // namespace
}  // namespace tulle::test
