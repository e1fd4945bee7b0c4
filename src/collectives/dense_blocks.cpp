#include "collectives/dense_blocks.hpp"
#include "collectives/gather.hpp"

namespace tulle {
namespace {
constexpr Step kSplitStep = 0, kGatherStep = 1;
}

Task<Part> split_and_gather_dense(Exchange& exchange, Part mine) {
  Buffer result = exchange.make_dense_result(kGatherStep, mine.stream.is_phantom());
  Part sum = co_await split_and_reduce(exchange, std::move(mine), kSplitStep, LayoutChoice::dense, result);
  Part block = exchange.with_coded_values(std::move(sum), kGatherStep);
  co_return co_await gather_blocks(exchange, std::move(block), kGatherStep, LayoutChoice::dense, std::move(result));
}

}  // namespace tulle
