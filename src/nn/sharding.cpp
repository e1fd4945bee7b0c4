#include "tulle/nn/sharding.hpp"

#include <fmt/format.h>

#include <numeric>
#include <utility>

#include "tulle/base/error.hpp"
#include "tulle/base/philox.hpp"

namespace tulle::nn {

Sharding::Sharding(std::uint64_t samples, int ranks, std::uint32_t batch, std::uint64_t seed)
    : samples_(samples),
      steps_(samples / (static_cast<std::uint64_t>(ranks) * batch)),
      seed_(seed),
      ranks_(ranks),
      batch_(batch) {
  if (samples >= std::uint64_t{1} << 32) throw Error(ErrorKind::bad_input, "more than 2^32 samples");
  if (steps_ > 0) return;
  throw Error(ErrorKind::bad_input,
              fmt::format("{} samples are fewer than the {} of a step: {} ranks with batches of {}", samples,
                          static_cast<std::uint64_t>(ranks) * batch, ranks, batch));
}

std::span<const std::uint32_t> Sharding::batches(std::uint64_t epoch, std::uint64_t step) {
  if (epoch != epoch_) {
    order_.resize(samples_);
    std::iota(order_.begin(), order_.end(), 0u);
    Philox dice(seed_, epoch);
    for (std::uint64_t i = samples_; i > 1; --i) std::swap(order_[i - 1], order_[dice.below(i)]);
    epoch_ = epoch;
  }
  const std::uint64_t all = static_cast<std::uint64_t>(ranks_) * batch_;
  return std::span<const std::uint32_t>(order_).subspan(step * all, all);
}

std::span<const std::uint32_t> Sharding::batch(std::uint64_t epoch, std::uint64_t step, int rank) {
  return batches(epoch, step).subspan(static_cast<std::uint64_t>(rank) * batch_, batch_);
}

}  // namespace tulle::nn
