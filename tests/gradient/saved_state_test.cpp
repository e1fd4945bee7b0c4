// States as bytes, and states that do not belong together.
#include "gradient/saved_state.hpp"

#include <gtest/gtest.h>

#include "tulle/base/error.hpp"

namespace tulle::gradient {
namespace {

SavedState state_of(std::uint64_t rank, std::span<const float> residual) {
  SavedState state{.rank = rank, .ranks = 2, .steps = 3, .local_steps = 0, .recipe = "topk:1%"};
  SavedParameter parameter{.name = "layer", .size = 3, .step = 3};
  parameter.arrays = {{"residual", residual}};
  state.parameters = {parameter};
  return state;
}

TEST(SavedState, OfTwoRanksIsAddedUpOnOne) {
  const std::vector<float> first = {1, 2, 3}, second = {10, 20, 30};
  const SavedState states[] = {state_of(0, first), state_of(1, second)};
  const SavedState sum = resharded(states, {.rank = 0, .ranks = 1});
  const std::span<const float> residual = sum.parameters[0].arrays[0].values;
  EXPECT_EQ(std::vector<float>(residual.begin(), residual.end()), (std::vector<float>{11, 22, 33}));
}

// The sum would read beyond the shorter one.
TEST(SavedState, WhoseArraysDifferInLengthIsRefused) {
  const std::vector<float> first = {1, 2, 3}, second = {10};
  const SavedState states[] = {state_of(0, first), state_of(1, second)};
  EXPECT_THROW(resharded(states, {.rank = 0, .ranks = 1}), Error);
}

}  // namespace
}  // namespace tulle::gradient
