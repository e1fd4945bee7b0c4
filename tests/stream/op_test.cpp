#include "tulle/stream/op.hpp"

#include "stream/model.hpp"

namespace tulle::test {
namespace {

template <class V>
class OpOn : public ::testing::Test {};
TYPED_TEST_SUITE(OpOn, ComputeTypes);

TYPED_TEST(OpOn, HasANeutralElementThatChangesNothing) {
  for (const Op& op : ops_on<TypeParam>()) {
    const auto neutral = op.neutral<TypeParam>();
    for (const TypeParam value : peculiar_values<TypeParam>()) {
      EXPECT_EQ(combined(op.code(), neutral, value), value) << op.name();
      EXPECT_EQ(combined(op.code(), value, neutral), value) << op.name();
    }
  }
}

TYPED_TEST(OpOn, ReadsBackFromItsName) {
  for (const Op& op : ops_on<TypeParam>()) EXPECT_EQ(op_from(op.name()).code(), op.code());
}

TEST(Op, OfBitsIsRefusedOnFloats) {
  const auto text = message_of(ErrorKind::bad_input, [] { Op::bit_or().require_defined_on(ValueType::f16); });
  EXPECT_CONTAINS(text, "bit_or");
  EXPECT_CONTAINS(text, "f16");
}

TEST(Op, OfAUserIsRefusedOnAnotherType) {
  EXPECT_CONTAINS(message_of(ErrorKind::bad_input, [] { first_op<double>().require_defined_on(ValueType::f32); }),
                  "first");
  first_op<float>().require_defined_on(ValueType::bf16);
}

TEST(Op, OfAUserNeedsAName) {
  message_of(ErrorKind::bad_input, [] { Op::user<float>("", 0.0f, [](float a, float) { return a; }); });
}

TEST(Op, WithAnUnknownNameIsRefusedWithTheAllowedOnes) {
  EXPECT_CONTAINS(message_of(ErrorKind::bad_input, [] { op_from("mean"); }), "sum, prod, min, max");
}

}  // namespace
}  // namespace tulle::test
