// The probe finds the constants of a network whose constants are known: a simulated one.
#include "tulle/tune/probe.hpp"

#include <gtest/gtest.h>

#include <mutex>
#include <set>

#include "tulle/comm/sim.hpp"
#include "tulle/comm/threads.hpp"

namespace tulle {
namespace {

constexpr Profile kSlow{.alpha_seconds = 3e-5, .beta_seconds_per_byte = 8.5e-9};

std::vector<MeasuredProfile> probe_simulated(const SimOptions& options, const ProbeOptions& probe_options,
                                             const std::vector<int>& nodes = {}) {
  SimWorld world(options);
  std::vector<MeasuredProfile> found;
  world.run([&](Communicator& communicator) -> Task<> {
    if (!nodes.empty()) communicator.set_nodes(nodes);
    found.push_back(co_await iprobe(communicator, probe_options));
  });
  return found;
}

class SimulatedProbe : public ::testing::TestWithParam<int> {};

TEST_P(SimulatedProbe, finds_alpha_and_beta_within_a_few_per_cent) {
  const auto found = probe_simulated({.ranks = GetParam(), .profile = kSlow}, {.rounds = 2, .kernels = false});
  for (const MeasuredProfile& each : found) {
    EXPECT_NEAR(each.profile.alpha_seconds, kSlow.alpha_seconds, 0.05 * kSlow.alpha_seconds);
    EXPECT_NEAR(each.profile.beta_seconds_per_byte, kSlow.beta_seconds_per_byte, 0.02 * kSlow.beta_seconds_per_byte);
    EXPECT_EQ(each, found.front());
  }
  EXPECT_NEAR(found.front().profile.exchange_factor, 1, 0.02) << "ports are full-duplex";
  EXPECT_EQ(found.front().ranks, GetParam());
  EXPECT_EQ(found.front().transport, "sim");
}
INSTANTIATE_TEST_SUITE_P(ranks, SimulatedProbe, ::testing::Values(2, 3, 4, 8, 17));

TEST(Probe, finds_the_line_through_delays_that_come_and_go) {
  const SimOptions options{.ranks = 4, .profile = kSlow, .faults = {.max_delay_seconds = 6e-6}};
  const MeasuredProfile found = probe_simulated(options, {.rounds = 9, .kernels = false}).front();
  // The mean delay is part of the latency; what is left is noise.
  EXPECT_NEAR(found.profile.alpha_seconds, kSlow.alpha_seconds + 3e-6, 0.1 * kSlow.alpha_seconds);
  EXPECT_NEAR(found.profile.beta_seconds_per_byte, kSlow.beta_seconds_per_byte, 0.05 * kSlow.beta_seconds_per_byte);
  EXPECT_LE(found.first_quartile.alpha_seconds, found.profile.alpha_seconds);
  EXPECT_LT(found.first_quartile.alpha_seconds, found.third_quartile.alpha_seconds);
}

TEST(Probe, on_one_node_has_one_network) {
  const Network network{.inside_node = {4e-6, 5e-10}, .ranks_per_node = 2};
  const MeasuredProfile found =
      probe_simulated({.ranks = 2, .network = network}, {.rounds = 1, .kernels = false}).front();
  EXPECT_EQ(found.nodes, 1);
  EXPECT_EQ(found.profile.alpha_seconds, found.profile.node_alpha_seconds);
  EXPECT_EQ(found.profile.beta_seconds_per_byte, found.profile.node_beta_seconds_per_byte);
  EXPECT_EQ(found.also.count("alone_node_alpha_seconds"), 1u);
  EXPECT_EQ(found.also.count("alone_alpha_seconds"), 0u);
}

// Nodes of 3 ranks: in the simulator they share the node's port, so that 3 at once take 3 times β.
TEST(Probe, measures_inside_and_between_nodes_apart) {
  const Network network{.between_nodes = {3e-5, 8.5e-9}, .inside_node = {4e-6, 5e-10}, .ranks_per_node = 3};
  const MeasuredProfile found =
      probe_simulated({.ranks = 6, .network = network}, {.rounds = 1, .kernels = false}).front();
  EXPECT_EQ(found.nodes, 2);
  EXPECT_NEAR(found.profile.alpha_seconds, 3e-5, 0.05 * 3e-5);
  EXPECT_NEAR(found.profile.beta_seconds_per_byte, 8.5e-9, 0.02 * 8.5e-9);
  EXPECT_NEAR(found.profile.node_alpha_seconds, 4e-6, 0.05 * 4e-6);
  EXPECT_NEAR(found.profile.node_beta_seconds_per_byte, 5e-10, 0.02 * 5e-10);
  const double crowded = found.also.at("crowded_beta_seconds_per_byte").median;
  EXPECT_GT(crowded, 2 * 8.5e-9);  // less than 3 times, because who is done first leaves the port to the others
  EXPECT_LE(crowded, 3 * 8.5e-9);
  EXPECT_NEAR(found.also.at("alone_node_alpha_seconds").median, 4e-6, 0.05 * 4e-6);
}

TEST(Probe, keeps_what_it_cannot_measure) {
  const MeasuredProfile found = probe_simulated({.ranks = 1, .profile = kSlow}, {.kernels = false}).front();
  EXPECT_EQ(found.profile, kSlow);
  const Profile apart =
      probe_simulated({.ranks = 2, .profile = kSlow}, {.rounds = 1, .kernels = false}, {0, 1}).front().profile;
  EXPECT_EQ(apart.node_alpha_seconds, kSlow.node_alpha_seconds);
  EXPECT_NE(apart.alpha_seconds, kSlow.alpha_seconds);
}

TEST(Probe, measures_every_constant_on_threads_the_same_for_all_ranks) {
  std::mutex mutex;
  std::vector<MeasuredProfile> found;
  run_threads(3, [&](Communicator& communicator) {
    const MeasuredProfile mine =
        probe(communicator, {.largest_bytes = 1 << 16, .rounds = 2, .kernel_seconds = 1e-3, .kernel_bytes = 1 << 18});
    const std::lock_guard lock(mutex);
    found.push_back(mine);
  });
  const Profile defaults;
  for (const ProfileConstant& constant : profile_constants()) {
    // Threads share memory: a byte may well cost nothing, one way or both.
    if (constant.name.find("beta") != std::string_view::npos || constant.name == "exchange_factor") continue;
    EXPECT_GT(found[0].profile.*constant.field, 0) << constant.name;
    EXPECT_NE(found[0].profile.*constant.field, defaults.*constant.field) << constant.name;
    EXPECT_LT(found[0].profile.*constant.field, 1e-2) << constant.name;
  }
  EXPECT_EQ(found[0], found[1]);
  EXPECT_EQ(found[0], found[2]);
}

TEST(Probe, says_how_far_it_is) {
  std::vector<std::uint64_t> steps;
  std::uint64_t last_total = 0;
  SimWorld world({.ranks = 2});
  world.run([&](Communicator& communicator) -> Task<> {
    ProbeOptions options{.rounds = 2, .kernels = false};
    if (communicator.rank() == 0) {
      options.on_progress = [&](std::uint64_t done, std::uint64_t total, std::string_view) {
        steps.push_back(done);
        last_total = total;
      };
    }
    co_await iprobe(communicator, options);
  });
  EXPECT_EQ(steps, (std::vector<std::uint64_t>{0, 1, 2, 3}));
  EXPECT_EQ(last_total, 4u);
}

TEST(Probe, refuses_options_out_of_bounds) {
  SimWorld world({.ranks = 1});
  Communicator& communicator = world.communicator(0);
  EXPECT_THROW(iprobe(communicator, {.rounds = 0}), Error);
  EXPECT_THROW(iprobe(communicator, {.largest_bytes = 64}), Error);
  EXPECT_THROW(iprobe(communicator, {.kernel_seconds = 0}), Error);
  EXPECT_THROW(iprobe(communicator, {.kernel_bytes = 8}), Error);
}

}  // namespace
}  // namespace tulle
