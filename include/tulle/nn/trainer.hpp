// Training of any torch::nn::Module on a communicator. Start here with a network of your own; examples/nn_own_model.cpp
// is a whole program. For networks that have names see train.hpp, which includes no header of torch.
//
//   nn::Trainer trainer(communicator, net, [net](const nn::Batch& batch) {
//     return nn::classification(net->forward(batch.inputs), batch.targets);
//   }, data, {.recipe = gradient::parse_recipe("topk:1%"), .epochs = 5});
//   nn::TrainResult result = trainer.train();
//
// Threads: a trainer belongs to one thread, its rank's. Ranks may be threads of a process: torch then computes with one
// thread for each, which the trainer sees to. Torch's own generator is one for the process, so that a module which
// draws from it (torch::dropout) does not repeat itself by seed; nn::seeded_dropout() does.
#pragma once

#include <torch/nn/module.h>
#include <torch/types.h>

#include <functional>
#include <memory>
#include <optional>
#include <span>

#include "tulle/comm/communicator.hpp"
#include "tulle/nn/options.hpp"

#pragma GCC visibility push(default)
namespace tulle::nn {

struct Batch {
  torch::Tensor inputs, targets;
};

/// Where samples come from. Both kinds are numbered from 0; ranks see the same ones under a number.
class Data {
 public:
  virtual ~Data() = default;
  virtual std::uint64_t train_samples() const = 0;
  virtual std::uint64_t test_samples() const = 0;
  /// `epoch` is for augmentation.
  virtual Batch train_batch(std::span<const std::uint32_t> samples, std::uint64_t epoch) const = 0;
  virtual Batch test_batch(std::span<const std::uint32_t> samples) const = 0;
  /// What the loss of these training samples is the mean of. Where samples have different numbers of predictions, as
  /// sentences have of words, ranks weigh their gradients by it, so that P ranks are one process with all their
  /// samples. By default samples count alike.
  virtual double train_predictions(std::span<const std::uint32_t> samples) const {
    return static_cast<double>(samples.size());
  }
};

/// Rows of tensors as samples: the first dimension of inputs and targets counts them.
std::shared_ptr<const Data> tensor_data(Batch train, Batch test);

/// What a network says about a batch.
struct Loss {
  torch::Tensor mean;                ///< over the batch; back-propagation starts here
  double correct = 0;                ///< predictions that were right, for the accuracy; 0 where there is no such thing
  std::optional<double> count = {};  ///< predictions; unset: as many as the batch has samples
  /// Predictions with the right answer among their five likeliest ones. Of held-out samples alone, for the time it
  /// takes.
  double top5_correct = 0;
};
using LossFunction = std::function<Loss(const Batch&)>;

/// The target of a place at which nothing is to be predicted.
inline constexpr std::int64_t kNoTarget = -100;
/// Cross-entropy. `scores` end in a dimension of classes; `targets` are their numbers, or kNoTarget.
Loss classification(const torch::Tensor& scores, const torch::Tensor& targets);
/// Half the mean square of the differences.
Loss regression(const torch::Tensor& outputs, const torch::Tensor& targets);

/// Zeros a share of the values and scales the others up, by the trainer's dice of this rank and step: a run repeats
/// itself by its seed. Gives `values` as they are while the module is evaluated.
torch::Tensor seeded_dropout(const torch::Tensor& values, double share, bool is_training);

class Trainer {
 public:
  /// Collective. `loss` runs the module. Weights and buffers that differ become those of rank 0 (with a parameter
  /// server workers whose buffers differ are refused when they train). Parameters are
  /// synchronized by their names, one that has several by the first; those that do not require a gradient are left
  /// alone. Throws bad_input for parameters that are not contiguous f32 on the CPU, for buffers that are not contiguous
  /// there, and for options that are out of bounds.
  Trainer(Communicator communicator, std::shared_ptr<torch::nn::Module> module, LossFunction loss,
          std::shared_ptr<const Data> data, const TrainerOptions& options = {});
  Trainer(Trainer&&) noexcept;
  ~Trainer();

  /// To the end of the last epoch, or to where it is asked to stop. Collective. What torch throws comes out as
  /// bad_input; where one rank fails, by whatever its data, loss or callbacks throw, all do, with its words. With a
  /// parameter server a worker that fails is lost and named, and the others go on.
  TrainResult train();
  /// On the held-out samples, which ranks divide. Collective.
  Evaluation evaluate();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tulle::nn
#pragma GCC visibility pop
