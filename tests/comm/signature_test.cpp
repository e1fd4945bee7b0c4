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

// As of a split, which knows no rows, where the other rank reduces.
TEST(CallSignature, describes_a_row_without_a_name_where_nobody_knows_it) {
  CallSignature mine;
  mine.kind = OperationKind::split;
  EXPECT_EQ(mine.describe(), "split");
  EXPECT_EQ(mine.describe(example().fingerprint()), "allreduce of 1000 f32 by sum");
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

// Two hashes in 4096 look alike in one call. Ranks that go on differing must not look alike in the next ones too.
TEST(CallSignature, tells_options_apart_by_one_of_the_next_calls_at_the_latest) {
  constexpr std::uint32_t kHashes = 100'000;
  std::uint32_t alike_once = 0, alike_twice = 0;
  CallSignature mine = example(), theirs = example();
  const auto look_alike_in = [&](std::uint64_t sequence) {
    mine.sequence = theirs.sequence = sequence;
    return mine.fingerprint() == theirs.fingerprint();
  };
  mine.options_hash = 0x89ABCDEF;
  for (std::uint32_t i = 1; i <= kHashes; ++i) {
    theirs.options_hash = mine.options_hash ^ (i * 0x01000193u);
    alike_once += look_alike_in(7);
    alike_twice += look_alike_in(7) && (look_alike_in(8) || look_alike_in(1'000'000));
  }
  EXPECT_GT(alike_once, 0u);
  EXPECT_LT(alike_once, 2 * kHashes / 4096);
  EXPECT_LT(alike_twice, 3u);
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
