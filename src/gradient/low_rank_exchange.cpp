#include "gradient/low_rank_exchange.hpp"

#include <algorithm>

#include "gradient/accumulate.hpp"
#include "gradient/outlast.hpp"

namespace tulle::gradient {

LowRankExchange::LowRankExchange(const Communicator& channel, MatrixShape shape, std::size_t rank, std::uint64_t seed)
    : channel_(channel), shape_(shape), seed_(seed), left_(shape.rows * rank), right_(shape.columns * rank) {
  draw_factor(right_, shape_.columns, seed_, 0);
}

Request<Outcome> LowRankExchange::sum(std::span<const float> factor, AlgorithmState& state) {
  const AnyStream stream =
      AnyStream::dense(ValueType::f32, factor.size(), {0, factor.size()}, Buffer::borrow(std::as_bytes(factor)));
  return iallreduce(channel_, stream, options_, &state);
}

void LowRankExchange::start(std::span<const float> matrix, const CallOptions& options) {
  matrix_ = matrix;
  options_ = options;
  counts_ = {};
  renew_factor(right_, shape_.columns, seed_, options.step.value_or(0));
  std::ranges::fill(left_, 0.0f);
  if (!matrix_.empty()) multiply(matrix_, shape_, right_, left_);
  request_ = sum(left_, left_algorithm_);
  turn_ = start_turn();
}

// An operation without messages: the engine drives it, and who drops it knows that it has ended.
Request<void> LowRankExchange::start_turn() {
  OperationSettings settings{.signature = {}, .deadline_seconds = options_.deadline_seconds, .borrows = true};
  settings.signature.algorithm_name = "low_rank";
  settings.signature.dimension = right_.size();
  using Result = std::optional<std::optional<Error>>;
  auto result = std::allocate_shared<Result>(PoolAllocator<Result>());
  auto operation = channel_.start(settings, [&](Operation&) { return turn(result); });
  return {channel_.engine(), std::move(operation), std::move(result)};
}

Task<> LowRankExchange::turn(std::shared_ptr<std::optional<std::optional<Error>>> result) {
  const Outcome outcome = co_await request_;
  count(outcome.counts);
  write_dense(outcome.stream, 1, left_);
  orthogonalize(left_, shape_.rows);
  std::ranges::fill(right_, 0.0f);
  if (!matrix_.empty()) multiply_transposed(matrix_, shape_, left_, right_);
  request_ = sum(right_, right_algorithm_);
  result->emplace();
}

Task<> LowRankExchange::finish() {
  co_await turn_;
  const Outcome outcome = co_await request_;
  count(outcome.counts);
  write_dense(outcome.stream, static_cast<float>(channel_.size()), right_);
}

bool LowRankExchange::test() {
  if (turn_.valid() && !turn_.test()) return false;
  return !request_.valid() || request_.test();
}

void LowRankExchange::count(const Counts& counts) {
  counts_.bytes_sent += counts.bytes_sent;
  counts_.data_bytes_received += counts.data_bytes_received;
}

Task<> LowRankExchange::abandon() {
  Task<> turning = outlast(turn_), exchange = outlast(request_);
  co_await turning;
  co_await exchange;
}

void LowRankExchange::move_to(const Communicator& channel) {
  channel_ = channel;
  left_algorithm_ = right_algorithm_ = {};
}

}  // namespace tulle::gradient
