#include "tulle/base/philox.hpp"

#include <gtest/gtest.h>

namespace tulle {
namespace {

using Block = std::array<std::uint32_t, 4>;

// kat_vectors of Random123, philox4x32 with 10 rounds.
TEST(Philox, MatchesTheKnownAnswersOfItsAuthors) {
  EXPECT_EQ(philox({0, 0, 0, 0}, {0, 0}), (Block{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox({~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}), (Block{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Block{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, GivesTheSameNumberWhateverWasDrawnBefore) {
  Philox drawn(7, 3);
  for (std::uint64_t n = 0; n < 100; ++n) EXPECT_EQ(drawn(), Philox(7, 3).at(n));
}

TEST(Philox, DiffersBetweenSeedsAndStreams) {
  EXPECT_NE(Philox(1, 0).at(0), Philox(2, 0).at(0));
  EXPECT_NE(Philox(1, 0).at(0), Philox(1, 1).at(0));
}

TEST(Philox, StaysInsideItsBounds) {
  Philox random(11);
  double sum = 0;
  for (int i = 0; i < 10'000; ++i) {
    const double value = random.uniform();
    ASSERT_GE(value, 0.0);
    ASSERT_LT(value, 1.0);
    ASSERT_LT(random.below(10), 10u);
    sum += value;
  }
  EXPECT_NEAR(sum / 10'000, 0.5, 0.02);
}

}  // namespace
}  // namespace tulle
