// Networks by name. Their layers are made in the order in which they are used, which is that of their parameters.
#pragma once

#include <torch/nn/module.h>
#include <torch/types.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace tulle::nn {

struct Network {
  std::shared_ptr<torch::nn::Module> module;
  std::function<torch::Tensor(torch::Tensor)> forward;
};

/// ReLU between the layers. `sizes` from the inputs to the classes.
Network make_mlp(const std::vector<std::int64_t>& sizes);
/// Two convolutions and two linear layers, for pictures of 28×28 and more.
Network make_cnn(std::int64_t channels, std::int64_t height, std::int64_t width, std::int64_t classes);
/// He et al.'s for 32×32 pictures, with shortcuts that have no parameters. REQUIRES: depth = 6n + 2.
Network make_resnet(int depth, std::int64_t channels, std::int64_t classes);
/// VGG-16 or VGG-19 with BatchNorm and one linear layer, as it is used for 32×32 pictures.
Network make_vgg(int depth, std::int64_t channels, std::int64_t classes);
/// Two layers of LSTM between an embedding and a linear layer: to predict the next of `symbols`.
Network make_lstm(std::int64_t symbols, std::int64_t hidden, double dropout);
/// The same for sentences: at each place one of `slots`, and at one more place, behind the last, one of `intents`,
/// whose scores follow those of the slots. Numbers below 0 among the inputs are no words.
Network make_tagger(std::int64_t words, std::int64_t slots, std::int64_t intents, std::int64_t hidden, double dropout);
/// Two causal layers of four heads: to predict the next of `symbols` from at most `sequence` before it.
Network make_transformer(std::int64_t symbols, std::int64_t hidden, std::int64_t sequence);

}  // namespace tulle::nn
