// The parameters of networks that the papers train, by name: what a step of recipes is measured on.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "tulle/gradient/synchronizer.hpp"

namespace tulle::measure {

struct ModelShapes {
  std::string_view name;
  std::string_view summary;
  std::vector<gradient::Parameter> (*parameters)();
};

/// vgg16, resnet20, lstm.
std::span<const ModelShapes> model_shapes();

/// Parameters of the model called `name`. Empty where none is called so.
std::vector<gradient::Parameter> parameters_of_model(std::string_view name);

/// Hidden parameters of these sizes.
std::vector<gradient::Parameter> parameters_of_sizes(std::span<const std::uint64_t> sizes);

std::uint64_t values_of(std::span<const gradient::Parameter> parameters);

}  // namespace tulle::measure
