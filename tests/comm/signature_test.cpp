#include "tulle/comm/signature.hpp"

#include <gtest/gtest.h>

namespace tulle {
namespace {

std::string_view name_of(std::uint8_t number) { return number == 3 ? "third" : "other"; }

CallSignature example() {
  return {OperationKind::allreduce, ValueType::f32, OpCode::sum, 3, 1000, 0, "third", name_of};
}

TEST(CallSignature, describes_another_rank_from_its_fingerprint) {
  CallSignature theirs = example();
  theirs.kind = OperationKind::reduce;
  theirs.type = ValueType::i64;
  theirs.op = OpCode::max;
  theirs.dimension = 2000000000;
  EXPECT_EQ(example().describe(theirs.fingerprint()), "reduce of 2000000000 i64 by max with third");
  EXPECT_EQ(example().describe(example().fingerprint()), example().describe());
  EXPECT_EQ(example().differences(theirs.fingerprint()), "kind, type, op, dimension");
}

TEST(CallSignature, has_another_fingerprint_whichever_field_differs) {
  const std::uint64_t mine = example().fingerprint();
  const auto differs = [&](auto change) {
    CallSignature theirs = example();
    change(theirs);
    return theirs.fingerprint() != mine;
  };
  EXPECT_TRUE(differs([](CallSignature& s) { s.kind = OperationKind::broadcast; }));
  EXPECT_TRUE(differs([](CallSignature& s) { s.type = ValueType::bf16; }));
  EXPECT_TRUE(differs([](CallSignature& s) { s.op = OpCode::user; }));
  EXPECT_TRUE(differs([](CallSignature& s) { s.algorithm = 4; }));
  EXPECT_TRUE(differs([](CallSignature& s) { s.dimension = 1001; }));
  EXPECT_TRUE(differs([](CallSignature& s) { s.options_hash = 0x12345678; }));
  EXPECT_TRUE(differs([](CallSignature& s) { s.dimension = (std::uint64_t{1} << 40) + 1000; }));
}

TEST(CallSignature, tells_large_dimensions_apart) {
  CallSignature a = example(), b = example();
  a.dimension = std::uint64_t{1} << 40;
  b.dimension = a.dimension + 1;
  EXPECT_NE(a.fingerprint(), b.fingerprint());
  EXPECT_NE(a.describe(b.fingerprint()).find("2^31 or more"), std::string::npos);
}

}  // namespace
}  // namespace tulle
