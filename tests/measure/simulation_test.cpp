#include "measure/simulation.hpp"

#include <gtest/gtest.h>

#include "tulle/base/error.hpp"
#include "tulle/comm/network.hpp"

namespace tulle::measure {
namespace {

ComparisonSpec spec_of(std::vector<std::string_view> algorithms, std::uint64_t dimension = 1 << 14) {
  ComparisonSpec spec{.dimension = dimension, .algorithms = std::move(algorithms)};
  spec.index_coding = "raw";
  return spec;
}

SimOptions on(const Network& network, int ranks) { return {.ranks = ranks, .network = network}; }

TEST(Simulation, takes_data_until_the_memory_limit_and_phantoms_beyond) {
  const ComparisonSpec spec = spec_of({"ssar_split_allgather", "dense_ring"});
  const double sparse = real_bytes(spec, 0.01, 8, "ssar_split_allgather");
  const double dense = real_bytes(spec, 0.01, 8, "dense_ring");
  EXPECT_LT(4 * sparse, dense);
  EXPECT_EQ(dense, 8 * 4 * 4.0 * (1 << 14) + 700 * 8 * 8);
  Simulation simulation(on(preset_network("gige"), 8), spec, 0.01, {.memory_bytes = (sparse + dense) / 2});
  const SimulatedRow real = simulation.run("ssar_split_allgather"), phantom = simulation.run("dense_ring");
  EXPECT_FALSE(real.is_phantom);
  EXPECT_TRUE(real.measured.verified);
  EXPECT_TRUE(phantom.is_phantom);
  EXPECT_FALSE(phantom.measured.verified);
  EXPECT_EQ(phantom.measured.failure, "");
}

TEST(Simulation, of_phantoms_takes_the_time_of_data) {
  const ComparisonSpec spec = spec_of({"ssar_recursive_double", "dsar_split_allgather", "dense_rabenseifner"});
  Simulation real(on(preset_network("gige"), 6), spec, 0.02, {.data = SimData::real});
  Simulation phantom(on(preset_network("gige"), 6), spec, 0.02, {.data = SimData::phantom});
  for (const std::string_view algorithm : spec.algorithms) {
    SCOPED_TRACE(algorithm);
    const double seconds = real.run(algorithm).measured.seconds->median;
    EXPECT_NEAR(phantom.run(algorithm).measured.seconds->median, seconds, 0.05 * seconds);
  }
}

TEST(Simulation, of_rows_that_select_checks_that_nothing_is_lost) {
  ComparisonSpec spec = spec_of({"spardl", "topka"}, 1 << 12);
  spec.takes = Takes::accumulator;
  Simulation simulation(on(preset_network("aries"), 6), spec, 0.01, {});
  for (const std::string_view algorithm : spec.algorithms) EXPECT_TRUE(simulation.run(algorithm).measured.verified);
}

// The first call of oktopk searches and finds cuts; the state that it leaves spares the others most of that.
TEST(Simulation, of_several_calls_carries_the_state_over) {
  ComparisonSpec spec = spec_of({"oktopk"}, 1 << 13);
  spec.takes = Takes::accumulator;
  const auto simulated = [&](int calls, SimData data) {
    spec.calls = calls;
    Simulation simulation(on(preset_network("gige"), 8), spec, 0.05, {.data = data});
    return simulation.run("oktopk");
  };
  for (const SimData data : {SimData::real, SimData::phantom}) {
    const SimulatedRow once = simulated(1, data), often = simulated(30, data);
    EXPECT_EQ(often.measured.failure, "");
    EXPECT_LT(often.measured.seconds->median, once.measured.seconds->median);
    EXPECT_LT(often.measured.data_bytes_max, once.measured.data_bytes_max);
    EXPECT_LT(often.measured.messages, once.measured.messages);
    EXPECT_EQ(often.measured.depth, once.measured.depth);  // the largest of all calls
  }
}

TEST(Simulation, tells_auto_the_density) {
  const ComparisonSpec spec = spec_of({"auto"}, 1 << 16);
  const auto chosen_at = [&](double density) {
    return Simulation(on(preset_network("gige"), 8), spec, density, {}).run("auto").measured.chosen;
  };
  EXPECT_NE(chosen_at(1e-4), chosen_at(0.9));
}

TEST(Simulation, refuses_phantoms_of_inputs_that_are_not_uniform) {
  ComparisonSpec spec = spec_of({"dense_ring"});
  spec.overlap = Overlap::zipf;
  Simulation simulation(on(preset_network("gige"), 2), spec, 0.1, {.data = SimData::phantom});
  EXPECT_THROW(simulation.run("dense_ring"), Error);
}

TEST(Simulation, of_a_slow_port_moves_what_is_busy_longest_there) {
  const ComparisonSpec spec = spec_of({"dense_ring"});
  Network network = preset_network("gige");
  const double fair = Simulation(on(network, 8), spec, 0.1, {}).run("dense_ring").totals.busiest_port_seconds;
  network.slow_links = {{.number = 3, .factor = 5}};
  const SimulatedRow slow = Simulation(on(network, 8), spec, 0.1, {}).run("dense_ring");
  EXPECT_NEAR(slow.totals.busiest_port_seconds, 5 * fair, 0.01 * fair);
  EXPECT_GE(slow.measured.seconds->median, slow.totals.busiest_port_seconds);
}

}  // namespace
}  // namespace tulle::measure
