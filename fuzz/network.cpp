// Files of networks: text is refused with bad_input, or describes a network that can be asked.
#include "cli/common/network_file.hpp"

#include "fuzz/fuzz.hpp"

using namespace tulle;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  fuzz::read_hostile([&] {
    const Network network = cli::network_from_json(text);
    network.validate(64);
    fuzz::require(network.ranks_per_node >= 1, "a node has ranks");
    fuzz::require(!network.has_leaves() || network.uplinks_per_leaf() >= 1, "a leaf has uplinks");
    fuzz::require(network.leaf_of(network.node_of(63)) >= 0, "a rank is somewhere");
  });
  return 0;
}
