#include "cli/common/network_flags.hpp"

#include <gtest/gtest.h>

#include "cli/common/network_file.hpp"
#include "tulle/base/error.hpp"

namespace tulle::cli {
namespace {

std::string error_of(const std::string& text) {
  try {
    network_from_json(text);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::bad_input);
    return error.what();
  }
  return "no error";
}

TEST(NetworkFile, holds_every_field_of_a_network) {
  const Network network = network_from_json(R"({
    "name": "two racks", "alpha_seconds": 3e-5, "beta_seconds_per_byte": 8e-9, "node_alpha_seconds": 1e-6,
    "node_beta_seconds_per_byte": 2e-10, "ranks_per_node": 2, "nodes_per_leaf": 16, "oversubscription": 4,
    "stragglers": [{"rank": 3, "factor": 2}], "slow_links": [{"node": 5, "factor": 10}]})");
  EXPECT_EQ(network.name, "two racks");
  EXPECT_EQ(network.between_nodes, (Wire{3e-5, 8e-9}));
  EXPECT_EQ(network.inside_node, (Wire{1e-6, 2e-10}));
  EXPECT_EQ(network.ranks_per_node, 2);
  EXPECT_EQ(network.uplinks_per_leaf(), 4);
  EXPECT_EQ(network.stragglers, (std::vector<Slowed>{{3, 2}}));
  EXPECT_EQ(network.slow_links, (std::vector<Slowed>{{5, 10}}));
}

TEST(NetworkFile, starts_from_a_preset_in_whatever_order_its_fields_are) {
  const Network network = network_from_json(R"({"alpha_seconds": 1, "preset": "aries", "ranks_per_node": 12})");
  EXPECT_EQ(network.name, "aries");
  EXPECT_EQ(network.between_nodes, (Wire{1, 1.6e-10}));
  EXPECT_EQ(network.ranks_per_node, 12);
}

TEST(NetworkFile, that_is_wrong_is_told_by_the_field) {
  EXPECT_NE(error_of(R"({"alpha": 1})").find("no field 'alpha'; there are alpha_seconds, beta"), std::string::npos);
  EXPECT_NE(error_of(R"({"alpha_seconds": "fast"})").find("alpha_seconds is \"fast\""), std::string::npos);
  EXPECT_NE(error_of(R"({"stragglers": [{"node": 1, "factor": 2}]})").find("stragglers"), std::string::npos);
  EXPECT_NE(error_of(R"({"preset": "lan"})").find("'lan'; there are gige"), std::string::npos);
  EXPECT_NE(error_of("[]").find("not a JSON object"), std::string::npos);
  EXPECT_NE(error_of("{").find("parse error"), std::string::npos);
}

TEST(NetworkFlags, change_what_the_preset_says) {
  const Network network = network_from(
      {.network = "gige", .ranks_per_node = 8, .fat_tree = {{16, 4}}, .stragglers = {{1, 2}}, .slow_links = {{0, 3}}});
  EXPECT_EQ(describe(network),
            "gige: 30 us per message, 8 ns per byte; 8 ranks per node, inside 0.5 us per message, 0.1 ns per byte; "
            "leaves of 16 nodes with 4 uplinks; rank 1 computes 2 times slower; the port of node 0 is 3 times slower");
}

}  // namespace
}  // namespace tulle::cli
