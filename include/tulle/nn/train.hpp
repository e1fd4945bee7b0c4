// Trainings by name: a network, a data set and options, on any communicator. Includes no header of torch.
//
//   auto data = std::make_shared<const tulle::nn::DataSet>(tulle::nn::open_data({.name = "fashion-mnist"}));
//   tulle::run_threads(4, [&](tulle::Communicator& communicator) {
//     tulle::nn::train(communicator, {.model = "mlp"}, data, {.recipe = tulle::gradient::parse_recipe("topk:1%")});
//   });
//
// Threads: each rank calls on its own. Ranks may be threads of one process; each computes with one thread.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tulle/comm/communicator.hpp"
#include "tulle/nn/data.hpp"
#include "tulle/nn/options.hpp"

#pragma GCC visibility push(default)
namespace tulle::nn {

/// A network that has a name.
struct ModelRow {
  std::string_view name;
  std::string_view data;  ///< what it takes: pictures of any size, 28×28 or more, 32×32; words; bytes
  std::string_view summary;
};
std::span<const ModelRow> models();

struct NetworkOptions {
  std::string model = "mlp";
  std::vector<std::int64_t> hidden =
      {};                       ///< mlp: sizes of the layers between; lstm, tagger, transformer: one. Empty: usual
  std::uint32_t sequence = 35;  ///< lstm, transformer: symbols of a sample
  double dropout = 0;           ///< lstm, tagger
  std::optional<Augmentation> augmentation =
      {};  ///< of pictures; unset: none for mlp and cnn, crop and flip for the others
};

/// What text is cut into for a model: bytes for transformer, words for the others.
TextUnit unit_of(std::string_view model);

/// Throws bad_input where the model is not known, does not go with the data, or takes no such option. Costs nothing.
void require_fit(const NetworkOptions& network, const DataSet& data);

/// Trains. Collective. Throws mismatch on all ranks, before the first step, where they do not have the same options or
/// the same data, by its checksum; and bad_input naming the option that is out of bounds, or why data or checkpoint
/// cannot be used.
TrainResult train(Communicator communicator, const NetworkOptions& network, const std::shared_ptr<const DataSet>& data,
                  const TrainerOptions& options);

}  // namespace tulle::nn
#pragma GCC visibility pop
