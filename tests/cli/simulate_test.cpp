// What `tulle simulate` is made of: network files, the choice between data and phantoms, and one simulated row.
#include <gtest/gtest.h>

#include "cli/simulate_network.hpp"
#include "cli/simulate_run.hpp"
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

RaceSpec spec_of(std::vector<std::string_view> algorithms, std::uint64_t dimension = 1 << 14) {
  RaceSpec spec{.dimension = dimension, .algorithms = std::move(algorithms)};
  spec.index_coding = "raw";
  return spec;
}

SimOptions on(const Network& network, int ranks) { return {.ranks = ranks, .network = network}; }

TEST(Simulation, takes_data_until_the_memory_limit_and_phantoms_beyond) {
  const RaceSpec spec = spec_of({"ssar_split_allgather", "dense_ring"});
  const double sparse = real_bytes(spec, 0.01, 8, "ssar_split_allgather");
  const double dense = real_bytes(spec, 0.01, 8, "dense_ring");
  EXPECT_LT(10 * sparse, dense);
  EXPECT_EQ(dense, 8 * 4 * 4.0 * (1 << 14) + 700 * 8 * 8);
  Simulation simulation(on(preset_network("gige"), 8), spec, 0.01, {.memory_bytes = (sparse + dense) / 2});
  const SimulatedRow real = simulation.run("ssar_split_allgather"), phantom = simulation.run("dense_ring");
  EXPECT_FALSE(real.is_phantom);
  EXPECT_TRUE(real.race.verified);
  EXPECT_TRUE(phantom.is_phantom);
  EXPECT_FALSE(phantom.race.verified);
  EXPECT_EQ(phantom.race.failure, "");
}

TEST(Simulation, of_phantoms_takes_the_time_of_data) {
  const RaceSpec spec = spec_of({"ssar_recursive_double", "dsar_split_allgather", "dense_rabenseifner"});
  Simulation real(on(preset_network("gige"), 6), spec, 0.02, {.data = SimData::real});
  Simulation phantom(on(preset_network("gige"), 6), spec, 0.02, {.data = SimData::phantom});
  for (const std::string_view algorithm : spec.algorithms) {
    SCOPED_TRACE(algorithm);
    const double seconds = real.run(algorithm).race.seconds->median;
    EXPECT_NEAR(phantom.run(algorithm).race.seconds->median, seconds, 0.05 * seconds);
  }
}

TEST(Simulation, of_rows_that_select_checks_that_nothing_is_lost) {
  RaceSpec spec = spec_of({"spardl", "topka"}, 1 << 12);
  spec.takes = Takes::accumulator;
  Simulation simulation(on(preset_network("aries"), 6), spec, 0.01, {});
  for (const std::string_view algorithm : spec.algorithms) EXPECT_TRUE(simulation.run(algorithm).race.verified);
}

TEST(Simulation, tells_auto_the_density) {
  const RaceSpec spec = spec_of({"auto"}, 1 << 16);
  const auto chosen_at = [&](double density) {
    return Simulation(on(preset_network("gige"), 8), spec, density, {}).run("auto").race.chosen;
  };
  EXPECT_NE(chosen_at(1e-4), chosen_at(0.9));
}

TEST(Simulation, refuses_phantoms_of_inputs_that_are_not_uniform) {
  RaceSpec spec = spec_of({"dense_ring"});
  spec.overlap = Overlap::zipf;
  Simulation simulation(on(preset_network("gige"), 2), spec, 0.1, {.data = SimData::phantom});
  EXPECT_THROW(simulation.run("dense_ring"), Error);
}

TEST(Simulation, of_a_slow_port_moves_what_is_busy_longest_there) {
  const RaceSpec spec = spec_of({"dense_ring"});
  Network network = preset_network("gige");
  const double fair = Simulation(on(network, 8), spec, 0.1, {}).run("dense_ring").totals.busiest_port_seconds;
  network.slow_links = {{.number = 3, .factor = 5}};
  const SimulatedRow slow = Simulation(on(network, 8), spec, 0.1, {}).run("dense_ring");
  EXPECT_NEAR(slow.totals.busiest_port_seconds, 5 * fair, 0.01 * fair);
  EXPECT_GE(slow.race.seconds->median, slow.totals.busiest_port_seconds);
}

}  // namespace
}  // namespace tulle::cli
