// What is wrong with a command line, in one sentence that names the flag and what is allowed.
#pragma once

#include <CLI/CLI.hpp>

#include <string>

namespace tulle::cli {

/// REQUIRES: `error` was thrown while `app` parsed.
std::string explain(const CLI::App& app, const CLI::ParseError& error);

}  // namespace tulle::cli
