#include "collectives/dense_blocks.hpp"
#include "collectives/gather.hpp"
#include "collectives/split.hpp"
#include "collectives/steps.hpp"

namespace tulle {
namespace {
constexpr Step kSplitStep = 0, kGatherStep = after_message(kSplitStep);
}

Task<Part> split_and_gather_dense(Exchange& exchange, Part mine) {
  Buffer result = exchange.make_dense_result(kGatherStep, mine.stream.is_phantom());
  Part sum = co_await split_and_reduce(exchange, std::move(mine), kSplitStep, LayoutChoice::dense, result);
  const Buffer place = exchange.block_of_result(result, sum.stream.range());
  Part block = exchange.with_coded_sum(std::move(sum), kGatherStep, place);
  co_return co_await gather_blocks(exchange, std::move(block), kGatherStep, LayoutChoice::dense, std::move(result));
}

}  // namespace tulle
