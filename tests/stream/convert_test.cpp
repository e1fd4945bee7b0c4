#include "stream/kernels.hpp"
#include "stream/model.hpp"

namespace tulle::test {
namespace {

template <class V>
class SixteenBitStream : public ::testing::Test {};
using SixteenBitTypes = ::testing::Types<Half, Bfloat16>;
TYPED_TEST_SUITE(SixteenBitStream, SixteenBitTypes);

template <class V>
std::vector<V> every_pattern() {
  std::vector<V> patterns(0x10000);
  for (std::uint32_t bits = 0; bits < patterns.size(); ++bits) patterns[bits].bits = static_cast<std::uint16_t>(bits);
  return patterns;
}

TYPED_TEST(SixteenBitStream, WidensLikeItsScalar) {
  const auto patterns = every_pattern<TypeParam>();
  for_each_target([&] {
    const Stream<float> wide(convert(Stream<TypeParam>::dense(patterns), ValueType::f32));
    for (std::size_t i = 0; i < patterns.size(); ++i) {
      const auto expected = static_cast<float>(patterns[i]);
      ASSERT_EQ(std::bit_cast<std::uint32_t>(wide.values()[i]), std::bit_cast<std::uint32_t>(expected)) << i;
    }
  });
}

// Bits around every boundary: each 16-bit value with its neighbours in f32 and the middles between two values.
TYPED_TEST(SixteenBitStream, NarrowsLikeItsScalarAndCountsOverflow) {
  std::vector<float> values;
  for (const TypeParam pattern : every_pattern<TypeParam>()) {
    const auto bits = std::bit_cast<std::uint32_t>(static_cast<float>(pattern));
    for (const std::uint32_t offset : {0x0u, 0x1u, 0xfffu, 0x1000u, 0x1001u, 0x7fffu, 0x8000u, 0x8001u, 0xffffffffu}) {
      values.push_back(std::bit_cast<float>(bits + offset));
    }
  }
  for_each_target([&] {
    KernelReport report;
    const Stream<TypeParam> narrow(convert(Stream<float>::dense(values), kValueTypeOf<TypeParam>, &report));
    std::uint64_t overflowed = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      const TypeParam expected(values[i]);
      ASSERT_EQ(narrow.values()[i].bits, expected.bits) << values[i];
      overflowed += std::isfinite(values[i]) && std::isinf(static_cast<float>(expected));
    }
    EXPECT_GT(overflowed, 0u);
    EXPECT_EQ(report.overflowed, overflowed);
  });
}

TYPED_TEST(SixteenBitStream, SharesItsIndicesWithTheWideForm) {
  const auto narrow = stream_of<TypeParam>(10, {{1, TypeParam(1.5f)}, {3, TypeParam(-2.0f)}});
  const Stream<float> wide(convert(narrow, ValueType::f32));
  EXPECT_EQ(wide.indices_buffer().data(), narrow.indices_buffer().data());
  EXPECT_EQ(wide.at(1), 1.5f);
  EXPECT_EQ(convert(wide, narrow.type()), narrow);
}

TEST(Convert, GivesItselfForItsOwnType) {
  const AnyStream stream = stream_of<double>(10, {{1, 1.0}});
  EXPECT_EQ(convert(stream, ValueType::f64).values_buffer().data(), stream.values_buffer().data());
}

TEST(Convert, RefusesAnotherFamily) {
  const auto text = message_of(ErrorKind::bad_input, [] { convert(Stream<float>(10), ValueType::i32); });
  EXPECT_CONTAINS(text, "f32");
  EXPECT_CONTAINS(text, "i32");
  message_of(ErrorKind::bad_input, [] { convert(Stream<double>(10), ValueType::f32); });
}

}  // namespace
}  // namespace tulle::test
