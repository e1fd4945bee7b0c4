// What a worker and a server compare before the first push, in words, so that a difference can be shown.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "tulle/server/options.hpp"

namespace tulle::server {

/// How pulls are coded.
Recipe pull_recipe(const Options& options);

/// Throws bad_input for names that are empty or not unique, and for parameters without values.
void require_parameters(std::span<const Parameter> parameters);

/// A line for the options, one for the job where that has words, and one for each parameter.
std::string description_of(std::span<const Parameter> parameters, const Options& options);
/// The first line in which two descriptions differ, in both forms; empty where they are equal. REQUIRES: both end with
/// a line's end, or are empty.
std::string first_difference(std::string_view mine, std::string_view theirs);

}  // namespace tulle::server
