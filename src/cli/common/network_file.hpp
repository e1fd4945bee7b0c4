// Networks of the simulator in files.
#pragma once

#include <string>

#include "tulle/comm/network.hpp"

namespace tulle::cli {

/// A network as an object of JSON; docs/simulation.md lists the fields. Throws bad_input naming the field.
Network network_from_json(const std::string& text);
/// The same of a file. Throws bad_input or system naming it.
Network read_network(const std::string& path);

}  // namespace tulle::cli
