// A training at work, whatever its ranks exchange with, and what both kinds of it do alike.
#pragma once

#include <memory>

#include "nn/learner.hpp"
#include "nn/run_state.hpp"
#include "tulle/comm/communicator.hpp"
#include "tulle/nn/sharding.hpp"

namespace tulle::nn {

class Training {
 public:
  virtual ~Training() = default;
  virtual TrainResult train() = 0;
  /// Collective: ranks divide the held-out samples.
  virtual Evaluation evaluate() = 0;
};

/// By sums among all ranks, or with a parameter server where the options have one. Collective. The learner must outlive
/// it. Throws bad_input naming an option that is out of bounds.
std::unique_ptr<Training> make_training(const Communicator& communicator, Learner& learner,
                                        const TrainerOptions& options);

/// Throws bad_input naming the option that is out of bounds.
void validate(const TrainerOptions& options);

/// Steps of an epoch: as many as the samples give, or fewer where the options say so.
std::uint64_t steps_of_epoch(const Sharding& sharding, const TrainerOptions& options);
/// The factor of the rate in a step, by its schedule.
double rate_factor(const TrainerOptions& options, std::uint64_t step, std::uint64_t steps_of_epoch);
/// Of what is random in a step: another for each rank and step, and not that of the samples' order.
std::uint64_t step_seed(std::uint64_t seed, int rank, std::uint64_t step);
/// By the norm of all gradients of the rank, which RedSync bounds by P^-1/2 of what one process would allow.
double clip_factor(Learner& learner, std::size_t parameters, double clip_norm, int ranks);

/// Sums over held-out samples.
struct HeldOutSums {
  double loss = 0, correct = 0, count = 0, top5_correct = 0;

  void add(const HeldOutSums& others);
  Evaluation mean() const;
};
/// The sums of all members. Collective.
HeldOutSums combine_held_out(Communicator& communicator, const HeldOutSums& mine);
/// Of the samples that rank `rank` of `ranks` measures.
HeldOutSums evaluate_share(Learner& learner, int rank, int ranks, std::uint32_t batch);

/// Running means and what else the network keeps, for checkpoints.
std::vector<std::span<std::byte>> bytes_of_buffers(Learner& learner);
/// Of all buffers, continued from `checksum`.
std::uint32_t checksum_of_buffers(Learner& learner, std::uint32_t checksum);

/// Which network this is, for checkpoints: how many parameters, a checksum of their names and sizes, and their list.
std::string network_fact(const std::vector<gradient::Parameter>& parameters);
/// How many buffers it has, and their bytes.
std::string buffers_fact(Learner& learner);

}  // namespace tulle::nn
