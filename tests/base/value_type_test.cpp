#include "tulle/base/value_type.hpp"

#include <gtest/gtest.h>

#include "tulle/base/error.hpp"

namespace tulle {
namespace {

TEST(ValueType, NamesReadBackAsTheSameType) {
  for (const ValueType type : kAllValueTypes) EXPECT_EQ(value_type_from(to_string(type)), type);
}

TEST(ValueType, UnknownNamesAreRefusedWithTheAllowedOnes) {
  try {
    value_type_from("f8");
    FAIL() << "f8 was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::bad_input);
    EXPECT_NE(std::string(error.what()).find("f32, f64, f16, bf16, i32, i64"), std::string::npos) << error.what();
  }
}

TEST(ValueType, SizesAreThoseOfTheCppTypes) {
  for (const ValueType type : kAllValueTypes) {
    EXPECT_EQ(size_of(type), visit_value_type(type, []<class V>() { return sizeof(V); })) << to_string(type);
    EXPECT_TRUE(visit_value_type(type, [&]<class V>() { return kValueTypeOf<V> == type; })) << to_string(type);
  }
}

TEST(ValueType, SixteenBitFloatsAreComputedInF32) {
  EXPECT_EQ(compute_type(ValueType::f16), ValueType::f32);
  EXPECT_EQ(compute_type(ValueType::bf16), ValueType::f32);
  EXPECT_EQ(compute_type(ValueType::i64), ValueType::i64);
}

}  // namespace
}  // namespace tulle
