#include "tulle/base/crc32c.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <string_view>
#include <vector>

namespace tulle {
namespace {

std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

TEST(Crc32c, MatchesTheCheckValueOfTheStandard) {
  EXPECT_EQ(crc32c(bytes_of("123456789")), 0xE3069283u);
  EXPECT_EQ(crc32c_reference(bytes_of("123456789")), 0xE3069283u);
}

TEST(Crc32c, MatchesTheVectorsOfRfc3720) {
  EXPECT_EQ(crc32c(std::vector<std::byte>(32, std::byte{0x00})), 0x8A9136AAu);
  EXPECT_EQ(crc32c(std::vector<std::byte>(32, std::byte{0xff})), 0x62A8AB43u);
}

TEST(Crc32c, OfNothingIsZero) { EXPECT_EQ(crc32c({}), 0u); }

RC_GTEST_PROP(Crc32c, ByInstructionEqualsTheReference,
              (const std::vector<unsigned char>& data, std::uint32_t previous)) {
  const auto bytes = std::as_bytes(std::span(data));
  RC_ASSERT(crc32c(bytes, previous) == crc32c_reference(bytes, previous));
}

// Long enough for lanes side by side, and what is left of them.
TEST(Crc32c, OfLongArraysEqualsTheReference) {
  std::vector<std::byte> data(20'000);
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<std::byte>((i * 2654435761u) >> 11);
  for (const std::size_t begin : {0, 1, 7}) {
    for (const std::size_t size : {1024, 3071, 3072, 3073, 3080, 6143, 6144, 6145, 9215, 9216, 10'000, 19'990}) {
      const auto bytes = std::span<const std::byte>(data).subspan(begin, size);
      EXPECT_EQ(crc32c(bytes, 0x12345678), crc32c_reference(bytes, 0x12345678)) << begin << ", " << size;
    }
  }
}

RC_GTEST_PROP(Crc32c, ContinuesFromTheSumOfAPrefix, (const std::vector<unsigned char>& data)) {
  const auto bytes = std::as_bytes(std::span(data));
  const auto cut = *rc::gen::inRange<std::size_t>(0, data.size() + 1);
  RC_ASSERT(crc32c(bytes.subspan(cut), crc32c(bytes.first(cut))) == crc32c(bytes));
}

}  // namespace
}  // namespace tulle
