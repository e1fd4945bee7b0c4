// Flags that say how a data file is read, the same for every command that reads one.
#pragma once

#include <CLI/CLI.hpp>

#include <string>

#include "cli/common/launch.hpp"
#include "tulle/linear/dataset.hpp"

namespace tulle::cli {

void add_data_flags(CLI::App& command, linear::DataOptions& options);

/// A part of the rows of `path`; rank 0 shows how many have been read.
linear::Dataset open_data(const std::string& path, TransportChoice transport, linear::DataOptions options,
                          int rank = 0);

/// The same as open_reader(), and throws bad_input where the file is empty: data that are not there yet, as a rule.
ReaderPtr open_filled(const std::string& path, TransportChoice transport = TransportChoice::threads);
/// A file, through MPI-IO where the ranks are MPI's.
ReaderPtr open_reader(const std::string& path, TransportChoice transport = TransportChoice::threads);

}  // namespace tulle::cli
