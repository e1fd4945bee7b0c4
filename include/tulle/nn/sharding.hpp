// Which rank takes which samples in which step: a permutation of all of them an epoch, by seed.
//
// Step s of P ranks with b samples each is what one rank with P·b samples takes: ranks divide batches, they do not
// change them. What is left over at the end of an epoch and does not fill a step is left out; it is other samples in
// every epoch.
//
// Threads: any, one at a time.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#pragma GCC visibility push(default)
namespace tulle::nn {

class Sharding {
 public:
  /// Throws bad_input where there are fewer samples than a step takes, or more than 2^32.
  Sharding(std::uint64_t samples, int ranks, std::uint32_t batch, std::uint64_t seed);

  std::uint64_t steps() const { return steps_; }  ///< of an epoch
  /// The samples of `rank` in a step. Valid until another epoch is asked for. The first call of an epoch makes its
  /// permutation, which takes a few ns a sample.
  std::span<const std::uint32_t> batch(std::uint64_t epoch, std::uint64_t step, int rank);
  /// The samples of all ranks in a step, under the same terms.
  std::span<const std::uint32_t> batches(std::uint64_t epoch, std::uint64_t step);

 private:
  std::uint64_t samples_, steps_, seed_;
  int ranks_;
  std::uint32_t batch_;
  std::uint64_t epoch_ = ~std::uint64_t{0};
  std::vector<std::uint32_t> order_;
};

}  // namespace tulle::nn
#pragma GCC visibility pop
