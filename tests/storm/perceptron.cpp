#include "storm/perceptron.hpp"

#include <algorithm>
#include <cmath>
#include <string>

#include "tulle/base/philox.hpp"

namespace tulle::storm {
namespace {

constexpr std::size_t kRows = 8, kInputs = 784, kClasses = 10;

// Uniform numbers with variance 1 do for normal ones, and cost less.
float draw(Philox& random) { return static_cast<float>((random.uniform() - 0.5) * 3.4641); }

// Partial sums, because a compiler may not change the order of a single one.
float dot(const float* a, const float* b, std::size_t count) {
  constexpr std::size_t kParts = 16;
  float parts[kParts] = {};
  std::size_t i = 0;
  for (; i + kParts <= count; i += kParts) {
    for (std::size_t j = 0; j < kParts; ++j) parts[j] += a[i + j] * b[i + j];
  }
  float sum = 0;
  for (const float part : parts) sum += part;
  for (; i < count; ++i) sum += a[i] * b[i];
  return sum;
}

void add_scaled(float factor, const float* from, float* to, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) to[i] += factor * from[i];
}

// Replaces outputs by the gradient of the mean loss with respect to them.
double differentiate_loss(std::vector<float>& outputs, const std::vector<std::size_t>& classes) {
  double loss = 0;
  for (std::size_t row = 0; row < classes.size(); ++row) {
    const std::span<float> scores = std::span(outputs).subspan(row * kClasses, kClasses);
    const float largest = *std::ranges::max_element(scores);
    float sum = 0;
    for (float& score : scores) sum += score = std::exp(score - largest);
    loss -= std::log(static_cast<double>(scores[classes[row]] / sum));
    for (float& score : scores) score /= sum * static_cast<float>(classes.size());
    scores[classes[row]] -= 1.0f / static_cast<float>(classes.size());
  }
  return loss / static_cast<double>(classes.size());
}

}  // namespace

Batch make_batch(std::uint64_t shard, std::uint64_t step) {
  Philox random(shard, step);
  Batch batch;
  for (std::size_t row = 0; row < kRows; ++row) {
    float sums[kClasses] = {};
    for (std::size_t i = 0; i < kInputs; ++i) {
      batch.inputs.push_back(draw(random));
      sums[i * kClasses / kInputs] += batch.inputs.back();
    }
    batch.classes.push_back(static_cast<std::size_t>(std::ranges::max_element(sums) - sums));
  }
  return batch;
}

Perceptron::Perceptron(std::size_t hidden) {
  const std::size_t sizes[] = {kInputs, hidden, hidden, kClasses};
  Philox random(1);
  for (std::size_t i = 0; i < 3; ++i) {
    layers_.push_back({.inputs = sizes[i], .outputs = sizes[i + 1], .begin = weights_.size()});
    const float scale = std::sqrt(2.0f / static_cast<float>(sizes[i]));
    for (std::size_t left = sizes[i] * sizes[i + 1]; left > 0; --left) weights_.push_back(scale * draw(random));
  }
}

std::vector<gradient::Parameter> Perceptron::parameters() const {
  std::vector<gradient::Parameter> all;
  for (const Layer& layer : layers_) {
    all.push_back({.name = "layer" + std::to_string(all.size()), .size = layer.inputs * layer.outputs});
  }
  return all;
}

std::vector<std::span<float>> Perceptron::layers_of(std::span<float> values) const {
  std::vector<std::span<float>> all;
  for (const Layer& layer : layers_) all.push_back(values.subspan(layer.begin, layer.inputs * layer.outputs));
  return all;
}

std::vector<float> Perceptron::forward(const Layer& layer, const std::vector<float>& inputs) const {
  const std::size_t rows = inputs.size() / layer.inputs;
  std::vector<float> outputs(rows * layer.outputs, 0.0f);
  for (std::size_t i = 0; i < layer.inputs; ++i) {
    const float* const weights = &weights_[layer.begin + i * layer.outputs];
    for (std::size_t row = 0; row < rows; ++row) {
      const float input = inputs[row * layer.inputs + i];
      if (input != 0) add_scaled(input, weights, &outputs[row * layer.outputs], layer.outputs);
    }
  }
  if (&layer == &layers_.back()) return outputs;
  for (float& output : outputs) output = std::max(output, 0.0f);
  return outputs;
}

std::vector<float> Perceptron::backward(const Layer& layer, const std::vector<float>& inputs,
                                        const std::vector<float>& slopes, std::span<float> gradient) const {
  const std::size_t rows = inputs.size() / layer.inputs;
  std::vector<float> before(inputs.size(), 0.0f);
  for (std::size_t i = 0; i < layer.inputs; ++i) {
    const std::size_t begin = layer.begin + i * layer.outputs;
    for (std::size_t row = 0; row < rows; ++row) {
      const float input = inputs[row * layer.inputs + i];
      if (input == 0) continue;  // the unit is off
      const float* const slope = &slopes[row * layer.outputs];
      add_scaled(input, slope, &gradient[begin], layer.outputs);
      if (layer.begin > 0) before[row * layer.inputs + i] = dot(&weights_[begin], slope, layer.outputs);
    }
  }
  return before;
}

double Perceptron::differentiate(const Batch& batch, std::span<float> gradient) const {
  std::vector<std::vector<float>> inputs = {batch.inputs};  // of each layer, then what comes out
  for (const Layer& layer : layers_) inputs.push_back(forward(layer, inputs.back()));
  std::vector<float> slopes = std::move(inputs.back());
  const double loss = differentiate_loss(slopes, batch.classes);
  std::ranges::fill(gradient, 0.0f);
  for (std::size_t i = layers_.size(); i-- > 0;) slopes = backward(layers_[i], inputs[i], slopes, gradient);
  return loss;
}

}  // namespace tulle::storm
