#include "nn/models.hpp"

#include <fmt/format.h>
#include <torch/nn/functional/activation.h>
#include <torch/nn/functional/pooling.h>
#include <torch/nn/init.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/modules/rnn.h>
#include <torch/nn/utils/rnn.h>

#include <cmath>
#include <limits>

#include "tulle/nn/trainer.hpp"

namespace tulle::nn {
namespace {

namespace tn = torch::nn;
namespace functional = torch::nn::functional;

template <class Module>
Network network_of(std::shared_ptr<Module> module) {
  return {module, [module](const torch::Tensor& inputs) { return module->forward(inputs); }};
}

struct Mlp : tn::Module {
  explicit Mlp(const std::vector<std::int64_t>& sizes) {
    for (std::size_t i = 0; i + 1 < sizes.size(); ++i) {
      layers.push_back(register_module(fmt::format("linear{}", i + 1), tn::Linear(sizes[i], sizes[i + 1])));
    }
  }
  torch::Tensor forward(torch::Tensor values) {
    values = values.flatten(1);
    for (std::size_t i = 0; i < layers.size(); ++i) {
      values = layers[i](values);
      if (i + 1 < layers.size()) values = torch::relu(values);
    }
    return values;
  }
  std::vector<tn::Linear> layers;
};

constexpr std::int64_t kCnnHidden = 128;

struct Cnn : tn::Module {
  Cnn(std::int64_t channels, std::int64_t height, std::int64_t width, std::int64_t classes)
      : first(register_module("conv1", tn::Conv2d(tn::Conv2dOptions(channels, 16, 5).padding(2)))),
        second(register_module("conv2", tn::Conv2d(tn::Conv2dOptions(16, 32, 5).padding(2)))),
        hidden(register_module("linear1", tn::Linear(32 * (height / 4) * (width / 4), kCnnHidden))),
        output(register_module("linear2", tn::Linear(kCnnHidden, classes))) {}
  torch::Tensor forward(torch::Tensor values) {
    values = torch::max_pool2d(torch::relu(first(values)), 2);
    values = torch::max_pool2d(torch::relu(second(values)), 2);
    return output(torch::relu(hidden(values.flatten(1))));
  }
  tn::Conv2d first, second;
  tn::Linear hidden, output;
};

// A convolution of 3×3 with BatchNorm, initialized as He et al. do.
struct ConvNorm : tn::Module {
  ConvNorm(std::int64_t from, std::int64_t to, std::int64_t stride)
      : conv(register_module("conv", tn::Conv2d(tn::Conv2dOptions(from, to, 3).stride(stride).padding(1).bias(false)))),
        norm(register_module("norm", tn::BatchNorm2d(to))) {
    tn::init::kaiming_normal_(conv->weight, 0, torch::kFanOut, torch::kReLU);
  }
  torch::Tensor forward(const torch::Tensor& values) { return norm(conv(values)); }
  tn::Conv2d conv;
  tn::BatchNorm2d norm;
};

// Two of them, and a way past them that halves the picture and adds channels of zeros where the block does.
struct Block : tn::Module {
  Block(std::int64_t from, std::int64_t to, std::int64_t step)
      : stride(step),
        added(to - from),
        first(register_module("first", std::make_shared<ConvNorm>(from, to, step))),
        second(register_module("second", std::make_shared<ConvNorm>(to, to, 1))) {}
  torch::Tensor forward(const torch::Tensor& values) {
    torch::Tensor past = values;
    if (stride > 1) past = past.slice(2, 0, past.size(2), stride).slice(3, 0, past.size(3), stride);
    if (added > 0) past = torch::constant_pad_nd(past, {0, 0, 0, 0, added / 2, added - added / 2});
    return torch::relu(second->forward(torch::relu(first->forward(values))) + past);
  }
  std::int64_t stride, added;
  std::shared_ptr<ConvNorm> first, second;
};

struct ResNet : tn::Module {
  ResNet(int depth, std::int64_t channels, std::int64_t classes)
      : stem(register_module("stem", std::make_shared<ConvNorm>(channels, 16, 1))) {
    std::int64_t from = 16;
    for (const std::int64_t to : {16, 32, 64}) {
      for (int i = 0; i < (depth - 2) / 6; ++i) {
        const std::int64_t stride = i == 0 && to > 16 ? 2 : 1;
        blocks.push_back(
            register_module(fmt::format("block{}", blocks.size() + 1), std::make_shared<Block>(from, to, stride)));
        from = to;
      }
    }
    output = register_module("linear", tn::Linear(64, classes));
  }
  torch::Tensor forward(torch::Tensor values) {
    values = torch::relu(stem->forward(values));
    for (const auto& block : blocks) values = block->forward(values);
    return output(values.mean({2, 3}));
  }
  std::shared_ptr<ConvNorm> stem;
  std::vector<std::shared_ptr<Block>> blocks;
  tn::Linear output{nullptr};
};

struct Vgg : tn::Module {
  Vgg(int depth, std::int64_t channels, std::int64_t classes) {
    const std::vector<int> counts = depth == 16 ? std::vector{2, 2, 3, 3, 3} : std::vector{2, 2, 4, 4, 4};
    const std::vector<std::int64_t> widths = {64, 128, 256, 512, 512};
    std::int64_t from = channels;
    for (std::size_t stage = 0; stage < counts.size(); ++stage) {
      for (int i = 0; i < counts[stage]; ++i) {
        layers.push_back(register_module(fmt::format("layer{}", layers.size() + 1),
                                         std::make_shared<ConvNorm>(from, widths[stage], 1)));
        halves.push_back(i + 1 == counts[stage]);
        from = widths[stage];
      }
    }
    output = register_module("linear", tn::Linear(512, classes));
  }
  torch::Tensor forward(torch::Tensor values) {
    for (std::size_t i = 0; i < layers.size(); ++i) {
      values = torch::relu(layers[i]->forward(values));
      if (halves[i]) values = torch::max_pool2d(values, 2);
    }
    return output(values.flatten(1));
  }
  std::vector<std::shared_ptr<ConvNorm>> layers;
  std::vector<bool> halves;  // the picture after the layer
  tn::Linear output{nullptr};
};

struct LstmModel : tn::Module {
  LstmModel(std::int64_t symbols, std::int64_t size, double share)
      : dropped(share),
        embedding(register_module("embedding", tn::Embedding(symbols, size))),
        first(register_module("lstm1", tn::LSTM(tn::LSTMOptions(size, size).batch_first(true)))),
        second(register_module("lstm2", tn::LSTM(tn::LSTMOptions(size, size).batch_first(true)))),
        output(register_module("linear", tn::Linear(size, symbols))) {
    tn::init::uniform_(embedding->weight, -0.1, 0.1);
  }
  torch::Tensor forward(const torch::Tensor& symbols) {
    torch::Tensor values = seeded_dropout(embedding(symbols), dropped, is_training());
    values = seeded_dropout(std::get<0>(first(values)), dropped, is_training());
    return output(seeded_dropout(std::get<0>(second(values)), dropped, is_training()));
  }
  double dropped;
  tn::Embedding embedding;
  tn::LSTM first, second;
  tn::Linear output;
};

// Sentences end at different places of a batch. The layer that reads them backwards begins at their own ends, and the
// intent is read from the mean of the states at their words, so that what fills a batch up changes no sentence.
struct Tagger : tn::Module {
  Tagger(std::int64_t words, std::int64_t slots, std::int64_t intents, std::int64_t size, double share)
      : dropped(share),
        embedding(register_module("embedding", tn::Embedding(words, size))),
        first(register_module("lstm1", tn::LSTM(tn::LSTMOptions(size, size).batch_first(true).bidirectional(true)))),
        second(register_module("lstm2", tn::LSTM(tn::LSTMOptions(2 * size, size).batch_first(true)))),
        slot(register_module("slot", tn::Linear(size, slots))),
        intent(register_module("intent", tn::Linear(size, intents))) {}
  torch::Tensor forward(const torch::Tensor& sentences) {
    const torch::Tensor words = sentences.ge(0).unsqueeze(2).to(torch::kFloat32);
    torch::Tensor values = seeded_dropout(embedding(sentences.clamp_min(0)), dropped, is_training()) * words;
    values = seeded_dropout(both_ways(values, words.sum({1, 2})), dropped, is_training());
    values = seeded_dropout(std::get<0>(second(values)), dropped, is_training());
    const torch::Tensor whole = (values * words).sum(1) / words.sum(1).clamp_min(1);
    constexpr double kNever = -1e4;  // a slot is no intent
    const torch::Tensor slots = torch::constant_pad_nd(slot(values), {0, intent->options.out_features()}, kNever);
    const torch::Tensor intents = torch::constant_pad_nd(intent(whole), {slot->options.out_features(), 0}, kNever);
    return torch::cat({slots, intents.unsqueeze(1)}, 1);
  }
  torch::Tensor both_ways(const torch::Tensor& values, const torch::Tensor& lengths) {
    const auto packed = tn::utils::rnn::pack_padded_sequence(values, lengths.clamp_min(1).to(torch::kInt64),
                                                             /*batch_first=*/true, /*enforce_sorted=*/false);
    const auto states = std::get<0>(first->forward_with_packed_input(packed));
    return std::get<0>(tn::utils::rnn::pad_packed_sequence(states, /*batch_first=*/true, /*padding_value=*/0.0,
                                                           /*total_length=*/values.size(1)));
  }
  double dropped;
  tn::Embedding embedding;
  tn::LSTM first, second;
  tn::Linear slot, intent;
};

constexpr std::int64_t kHeads = 4, kTransformerLayers = 2;

// Attention to what came before, then a layer of four times the size, each behind a norm and beside a way past it.
struct TransformerLayer : tn::Module {
  explicit TransformerLayer(std::int64_t size)
      : before(register_module("norm1", tn::LayerNorm(tn::LayerNormOptions({size})))),
        mix(register_module("attention", tn::Linear(size, 3 * size))),
        project(register_module("project", tn::Linear(size, size))),
        between(register_module("norm2", tn::LayerNorm(tn::LayerNormOptions({size})))),
        widen(register_module("widen", tn::Linear(size, 4 * size))),
        narrow(register_module("narrow", tn::Linear(4 * size, size))) {}
  torch::Tensor forward(torch::Tensor values) {
    values = values + attend(before(values));
    return values + narrow(torch::gelu(widen(between(values))));
  }
  torch::Tensor attend(const torch::Tensor& values) {
    const std::int64_t batch = values.size(0), length = values.size(1), size = values.size(2);
    const auto parts = mix(values).view({batch, length, 3, kHeads, size / kHeads}).permute({2, 0, 3, 1, 4}).unbind(0);
    const torch::Tensor later = torch::ones({length, length}, torch::kBool).triu(1);
    torch::Tensor shares = parts[0].matmul(parts[1].transpose(2, 3)) / std::sqrt(static_cast<double>(size / kHeads));
    shares = shares.masked_fill(later, -std::numeric_limits<float>::infinity()).softmax(-1);
    return project(shares.matmul(parts[2]).transpose(1, 2).reshape({batch, length, size}));
  }
  tn::LayerNorm before;
  tn::Linear mix, project;
  tn::LayerNorm between;
  tn::Linear widen, narrow;
};

struct Transformer : tn::Module {
  Transformer(std::int64_t symbols, std::int64_t size, std::int64_t sequence)
      : embedding(register_module("embedding", tn::Embedding(symbols, size))),
        places(register_module("places", tn::Embedding(sequence, size))) {
    for (std::int64_t i = 0; i < kTransformerLayers; ++i) {
      layers.push_back(register_module(fmt::format("layer{}", i + 1), std::make_shared<TransformerLayer>(size)));
    }
    norm = register_module("norm", tn::LayerNorm(tn::LayerNormOptions({size})));
    output = register_module("linear", tn::Linear(size, symbols));
    tn::init::normal_(embedding->weight, 0, 0.02);
    tn::init::normal_(places->weight, 0, 0.02);
  }
  torch::Tensor forward(const torch::Tensor& symbols) {
    torch::Tensor values = embedding(symbols) + places(torch::arange(symbols.size(1)));
    for (const auto& layer : layers) values = layer->forward(values);
    return output(norm(values));
  }
  tn::Embedding embedding, places;
  std::vector<std::shared_ptr<TransformerLayer>> layers;
  tn::LayerNorm norm{nullptr};
  tn::Linear output{nullptr};
};

}  // namespace

Network make_mlp(const std::vector<std::int64_t>& sizes) { return network_of(std::make_shared<Mlp>(sizes)); }

Network make_cnn(std::int64_t channels, std::int64_t height, std::int64_t width, std::int64_t classes) {
  return network_of(std::make_shared<Cnn>(channels, height, width, classes));
}

Network make_resnet(int depth, std::int64_t channels, std::int64_t classes) {
  return network_of(std::make_shared<ResNet>(depth, channels, classes));
}

Network make_vgg(int depth, std::int64_t channels, std::int64_t classes) {
  return network_of(std::make_shared<Vgg>(depth, channels, classes));
}

Network make_lstm(std::int64_t symbols, std::int64_t hidden, double dropout) {
  return network_of(std::make_shared<LstmModel>(symbols, hidden, dropout));
}

Network make_tagger(std::int64_t words, std::int64_t slots, std::int64_t intents, std::int64_t hidden, double dropout) {
  return network_of(std::make_shared<Tagger>(words, slots, intents, hidden, dropout));
}

Network make_transformer(std::int64_t symbols, std::int64_t hidden, std::int64_t sequence) {
  return network_of(std::make_shared<Transformer>(symbols, hidden, sequence));
}

}  // namespace tulle::nn
