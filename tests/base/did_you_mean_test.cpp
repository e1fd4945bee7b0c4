#include "base/did_you_mean.hpp"

#include <gtest/gtest.h>

namespace tulle {
namespace {

constexpr std::string_view kNames = "dense, noop, fp16, topk, redsync, redsync_quantized, three_lc";

TEST(DidYouMean, NamesTheNearest) {
  EXPECT_EQ(did_you_mean("tokp", kNames), "; did you mean 'topk'?");
  EXPECT_EQ(did_you_mean("topkk", kNames), "; did you mean 'topk'?");
  EXPECT_EQ(did_you_mean("redsink", kNames), "; did you mean 'redsync'?");
  EXPECT_EQ(did_you_mean("redsync_quantised", kNames), "; did you mean 'redsync_quantized'?");
  EXPECT_EQ(did_you_mean("3lc", "three_lc, 3lcs"), "; did you mean '3lcs'?");
}

TEST(DidYouMean, SaysNothingOfWhatIsFar) {
  for (const std::string_view name : {"", "adam", "x", "quantize", "dense_below"})
    EXPECT_EQ(did_you_mean(name, kNames), "") << name;
  EXPECT_EQ(did_you_mean("topk", ""), "");
  EXPECT_EQ(did_you_mean(std::string(100'000, 'a'), kNames), "");
  EXPECT_EQ(did_you_mean("topk", std::string(100'000, 'a')), "");
}

}  // namespace
}  // namespace tulle
