#include "measure/model_shapes.hpp"

#include <fmt/format.h>

namespace tulle::measure {
namespace {

using gradient::Parameter;
using gradient::Role;

// A model's parameters in the order of its layers.
class Layers {
 public:
  Layers& add(std::string name, std::uint64_t size, Role role) {
    parameters_.push_back({.name = std::move(name), .size = size, .role = role});
    return *this;
  }
  Layers& matrix(std::string name, std::uint64_t rows, std::uint64_t columns, Role role = Role::hidden) {
    add(std::move(name), rows * columns, role);
    parameters_.back().rows = rows;
    return *this;
  }
  Layers& convolution(std::uint64_t in, std::uint64_t out) {
    return matrix(fmt::format("conv{}.weight", ++convolutions_), out, in * 9);
  }
  Layers& bias(std::uint64_t channels) {
    return add(fmt::format("conv{}.bias", convolutions_), channels, Role::bias_or_norm);
  }
  Layers& norm(std::uint64_t channels) {
    add(fmt::format("norm{}.weight", convolutions_), channels, Role::bias_or_norm);
    return add(fmt::format("norm{}.bias", convolutions_), channels, Role::bias_or_norm);
  }
  std::vector<Parameter> with_output(std::uint64_t in, std::uint64_t out) {
    matrix("output.weight", out, in, Role::output);
    add("output.bias", out, Role::bias_or_norm);
    return std::move(parameters_);
  }

 private:
  std::vector<Parameter> parameters_;
  int convolutions_ = 0;
};

// For CIFAR-10: 14,728,266 values.
std::vector<Parameter> vgg16() {
  Layers layers;
  std::uint64_t in = 3;
  for (const std::uint64_t out : {64u, 64u, 128u, 128u, 256u, 256u, 256u, 512u, 512u, 512u, 512u, 512u, 512u}) {
    layers.convolution(in, out).bias(out).norm(out);
    in = out;
  }
  return layers.with_output(512, 10);
}

// For CIFAR-10, shortcuts without parameters: 269,722 values.
std::vector<Parameter> resnet20() {
  Layers layers;
  layers.convolution(3, 16).norm(16);
  std::uint64_t in = 16;
  for (const std::uint64_t out : {16u, 32u, 64u}) {
    for (int i = 0; i < 6; ++i) {
      layers.convolution(in, out).norm(out);
      in = out;
    }
  }
  return layers.with_output(64, 10);
}

// For the Penn Treebank, as RedSync trains it: two layers of 1500, 66,034,000 values.
std::vector<Parameter> lstm() {
  constexpr std::uint64_t kWords = 10'000, kHidden = 1500;
  Layers layers;
  layers.matrix("embedding.weight", kWords, kHidden);
  for (const int layer : {1, 2}) {
    for (const char* const name : {"input", "hidden"}) {
      layers.matrix(fmt::format("lstm{}.{}.weight", layer, name), 4 * kHidden, kHidden);
      layers.add(fmt::format("lstm{}.{}.bias", layer, name), 4 * kHidden, Role::bias_or_norm);
    }
  }
  return layers.with_output(kHidden, kWords);
}

constexpr ModelShapes kModels[] = {
    {"vgg16", "VGG-16 for CIFAR-10, 14.7M values in 54 parameters", vgg16},
    {"resnet20", "ResNet-20 for CIFAR-10, 270K values in 59 parameters", resnet20},
    {"lstm", "two layers of 1500 for the Penn Treebank, 66M values in 11 parameters", lstm},
};

}  // namespace

std::span<const ModelShapes> model_shapes() { return kModels; }

std::vector<Parameter> parameters_of_model(std::string_view name) {
  for (const ModelShapes& model : kModels) {
    if (model.name == name) return model.parameters();
  }
  return {};
}

std::vector<Parameter> parameters_of_sizes(std::span<const std::uint64_t> sizes) {
  std::vector<Parameter> parameters;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    parameters.push_back({.name = fmt::format("parameter{}", i), .size = sizes[i]});
  }
  return parameters;
}

std::uint64_t values_of(std::span<const Parameter> parameters) {
  std::uint64_t values = 0;
  for (const Parameter& parameter : parameters) values += parameter.size;
  return values;
}

}  // namespace tulle::measure
