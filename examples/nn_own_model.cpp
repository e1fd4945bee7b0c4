// A network of one's own on four ranks, which are threads here: gradients travel as the largest 5 % of their values.
#include <torch/nn/modules/linear.h>
#include <tulle/comm/threads.hpp>
#include <tulle/nn/trainer.hpp>

#include <cstdio>

struct Net : torch::nn::Module {
  torch::nn::Linear hidden = register_module("hidden", torch::nn::Linear(2, 64));
  torch::nn::Linear output = register_module("output", torch::nn::Linear(64, 2));
  torch::Tensor forward(const torch::Tensor& points) { return output(torch::relu(hidden(points))); }
};

// Points on a grid: which of them are inside of a circle?
tulle::nn::Batch circle(std::int64_t side) {
  const torch::Tensor line = torch::linspace(-1, 1, side);
  const auto grid = torch::meshgrid({line, line}, "ij");
  const torch::Tensor points = torch::stack({grid[0].flatten(), grid[1].flatten()}, 1);
  return {points, points.square().sum(1).lt(0.5).to(torch::kInt64)};
}

int main() {
  torch::manual_seed(1);
  const auto data = tulle::nn::tensor_data(circle(80), circle(33));
  tulle::run_threads(4, [&](tulle::Communicator& communicator) {
    const auto net = std::make_shared<Net>();  // ranks begin with the weights of rank 0
    const auto loss = [net](const tulle::nn::Batch& batch) {
      return tulle::nn::classification(net->forward(batch.inputs), batch.targets);
    };
    tulle::nn::TrainerOptions options{.recipe = tulle::gradient::parse_recipe("topk:5%|dense_below:0"), .rate = 0.02};
    options.batch = 16;
    options.epochs = 10;
    options.optimizer.momentum = 0.9;
    options.on_epoch = [](const tulle::nn::EpochMetrics& epoch) {
      std::printf("epoch %2d: loss %.4f, accuracy %.4f, %.0f bytes sent by a rank\n", epoch.epoch, epoch.loss,
                  epoch.held_out.accuracy, epoch.bytes_sent);
    };
    tulle::nn::Trainer(communicator, net, loss, data, options).train();
  });
}
