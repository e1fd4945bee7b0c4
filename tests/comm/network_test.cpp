// The networks of the simulator: times computed by hand for messages that meet at ports, nodes and uplinks.
#include "tulle/comm/network.hpp"

#include <gtest/gtest.h>

#include <set>

#include "tulle/comm/sim.hpp"

namespace tulle {
namespace {

struct Sending {
  int source;
  int target;
  std::size_t payload_bytes;
};

// A message of `payload` bytes on the wire: header, one length, the bytes.
constexpr double wire_bytes(double payload) { return 48 + 8 + payload; }

// α is 1000 s and β 1 s a byte between nodes, 10 s and 1/4 s inside.
Network slow_network() {
  Network network;
  network.between_nodes = {1000, 1};
  network.inside_node = {10, 0.25};
  return network;
}

struct Arrived {
  double seconds = 0;
  SimTotals totals;
};

// Sends all at time zero, in this order, and waits until they have arrived.
Arrived run_sendings(int ranks, const Network& network, const std::vector<Sending>& sendings) {
  SimWorld world({.ranks = ranks, .network = network});
  const auto body = [&](Operation& operation) -> Task<> {
    Step step = 0;
    for (const Sending& each : sendings) {
      Segments segments;
      segments.push_back(Buffer::phantom(each.payload_bytes));
      if (each.source == operation.rank()) operation.send(each.target, step, std::move(segments), 0);
      step += 1;
    }
    step = 0;
    for (const Sending& each : sendings) {
      if (each.target == operation.rank()) co_await operation.receive(each.source, step);
      step += 1;
    }
  };
  world.run([&](Communicator& communicator) -> Task<> {
    auto operation = communicator.start({.deadline_seconds = 1e6}, [&](Operation& started) { return body(started); });
    co_await Engine::Finished(operation);
  });
  return {world.elapsed_seconds(), world.totals()};
}

std::string error_of(const Network& network, int ranks) {
  try {
    network.validate(ranks);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::bad_input);
    return error.what();
  }
  return "no error";
}

TEST(Network, that_is_flat_queues_messages_at_the_receiver) {
  const Arrived run = run_sendings(3, slow_network(), {{0, 2, 60}, {1, 2, 60}});
  EXPECT_EQ(run.seconds, 1000 + 2 * wire_bytes(60));
  EXPECT_EQ(run.totals.busiest_port_bytes, 232u);
  EXPECT_EQ(run.totals.busiest_port_seconds, 232);
}

TEST(Network, inside_a_node_has_an_alpha_and_a_beta_of_its_own) {
  Network network = slow_network();
  network.ranks_per_node = 2;
  EXPECT_EQ(run_sendings(4, network, {{0, 1, 60}}).seconds, 10 + 0.25 * wire_bytes(60));
  EXPECT_EQ(run_sendings(4, network, {{1, 2, 60}}).seconds, 1000 + wire_bytes(60));
}

TEST(Network, ranks_of_a_node_share_its_port_and_have_own_ones_to_memory) {
  Network network = slow_network();
  network.ranks_per_node = 2;
  // Both leave node 0 by one port; they arrive at nodes 1 and 2.
  EXPECT_EQ(run_sendings(6, network, {{0, 2, 60}, {1, 4, 60}}).seconds, 1000 + 2 * wire_bytes(60));
  // Inside, 0 to 1 and 1 to 0 do not meet.
  EXPECT_EQ(run_sendings(6, network, {{0, 1, 60}, {1, 0, 60}}).seconds, 10 + 0.25 * wire_bytes(60));
}

TEST(Network, a_shared_port_serves_who_comes_first_and_not_who_is_simulated_first) {
  Network network = slow_network();
  network.ranks_per_node = 2;
  SimWorld world({.ranks = 4, .profile = {.gamma_sparse_seconds = 1}, .network = network});
  std::vector<double> arrivals(4);
  const auto body = [&](Operation& operation) -> Task<> {
    Segments segments;
    segments.push_back(Buffer::phantom(60));
    if (operation.rank() == 0) operation.charge({.sparse_items = 50});
    if (operation.rank() < 2) operation.send(operation.rank() + 2, 0, std::move(segments), 0);
    if (operation.rank() >= 2) co_await operation.receive(operation.rank() - 2, 0);
    arrivals[static_cast<std::size_t>(operation.rank())] = operation.seconds();
  };
  world.run([&](Communicator& communicator) -> Task<> {
    auto operation = communicator.start({.deadline_seconds = 1e6}, [&](Operation& started) { return body(started); });
    co_await Engine::Finished(operation);
  });
  EXPECT_EQ(arrivals[3], 1000 + wire_bytes(60));      // rank 1 sends at 0
  EXPECT_EQ(arrivals[2], 1000 + 2 * wire_bytes(60));  // rank 0 at 50, when the port is taken until 100
}

TEST(Network, gives_the_layout_and_the_constants_to_communicators) {
  Network network = slow_network();
  network.ranks_per_node = 3;
  SimWorld world({.ranks = 7, .profile = {.gamma_dense_seconds = 5}, .network = network});
  const Communicator& communicator = world.communicator(4);
  EXPECT_EQ(std::vector<int>(communicator.nodes().begin(), communicator.nodes().end()),
            (std::vector<int>{0, 0, 0, 1, 1, 1, 2}));
  EXPECT_EQ(communicator.profile().alpha_seconds, 1000);
  EXPECT_EQ(communicator.profile().node_beta_seconds_per_byte, 0.25);
  EXPECT_EQ(communicator.profile().gamma_dense_seconds, 5);
}

// Leaves of four nodes. With oversubscription 2 each has two uplinks.
Network fat_tree(int oversubscription) {
  Network network = slow_network();
  network.nodes_per_leaf = 4;
  network.oversubscription = oversubscription;
  return network;
}

TEST(FatTree, queues_messages_between_leaves_at_too_few_uplinks) {
  const std::vector<Sending> across = {{0, 4, 60}, {1, 5, 60}, {2, 6, 60}, {3, 7, 60}};
  EXPECT_EQ(run_sendings(8, fat_tree(1), across).seconds, 1000 + wire_bytes(60));
  EXPECT_EQ(run_sendings(8, fat_tree(2), across).seconds, 1000 + 2 * wire_bytes(60));
  EXPECT_EQ(run_sendings(8, fat_tree(4), across).seconds, 1000 + 4 * wire_bytes(60));
  EXPECT_EQ(run_sendings(8, fat_tree(4), across).totals.busiest_port_bytes, 464u);
}

TEST(FatTree, leaves_messages_inside_a_leaf_alone) {
  const std::vector<Sending> within = {{0, 1, 60}, {1, 2, 60}, {2, 3, 60}, {3, 0, 60}};
  EXPECT_EQ(run_sendings(8, fat_tree(4), within).seconds, 1000 + wire_bytes(60));
}

TEST(FatTree, queues_at_the_downlinks_too) {
  // Three leaves; two messages from different leaves meet at the one downlink of the third.
  EXPECT_EQ(run_sendings(12, fat_tree(4), {{0, 8, 60}, {4, 9, 60}}).seconds, 1000 + 2 * wire_bytes(60));
}

TEST(FatTree, is_full_duplex) {
  EXPECT_EQ(run_sendings(8, fat_tree(4), {{0, 4, 60}, {4, 0, 60}}).seconds, 1000 + wire_bytes(60));
}

TEST(SlowLink, stretches_what_its_node_sends_and_receives) {
  Network network = slow_network();
  network.slow_links = {{.number = 1, .factor = 3}};
  EXPECT_EQ(run_sendings(3, network, {{0, 2, 60}}).seconds, 1000 + wire_bytes(60));
  EXPECT_EQ(run_sendings(3, network, {{0, 1, 60}}).seconds, 1000 + 3 * wire_bytes(60));
  EXPECT_EQ(run_sendings(3, network, {{1, 0, 60}}).seconds, 1000 + 3 * wire_bytes(60));
}

TEST(SlowLink, of_a_sender_does_not_keep_the_receiver_from_others) {
  Network network = slow_network();
  network.slow_links = {{.number = 1, .factor = 3}};
  // The slow message comes in between: its last byte is there at 1300, the other one's before.
  EXPECT_EQ(run_sendings(3, network, {{1, 0, 60}, {2, 0, 60}}).seconds, 1000 + 3 * wire_bytes(60));
}

TEST(Straggler, computes_slower_than_the_others) {
  Network network = slow_network();
  network.stragglers = {{.number = 1, .factor = 7}};
  SimWorld world({.ranks = 2, .profile = {.gamma_sparse_seconds = 1}, .network = network});
  std::vector<double> ends(2);
  world.run([&](Communicator& communicator) -> Task<> {
    const auto body = [&](Operation& operation) -> Task<> {
      operation.charge({.sparse_items = 50});
      ends[static_cast<std::size_t>(operation.rank())] = operation.seconds();
      co_return;
    };
    auto operation = communicator.start({.deadline_seconds = 1e6}, [&](Operation& started) { return body(started); });
    co_await Engine::Finished(operation);
  });
  EXPECT_EQ(ends, (std::vector<double>{50, 350}));
}

TEST(Presets, are_valid_and_ordered_as_their_names_promise) {
  std::set<std::string_view> names;
  for (const NetworkPreset& preset : network_presets()) {
    names.insert(preset.name);
    EXPECT_FALSE(preset.origin.empty());
    const Network network = preset_network(preset.name);
    EXPECT_EQ(network.between_nodes, preset.between_nodes);
    EXPECT_EQ(error_of(network, 4096), "no error");
  }
  EXPECT_EQ(names, (std::set<std::string_view>{"gige", "10gbe", "ib_fdr", "aries", "wan_100mbit"}));
  const auto gigabits = [](std::string_view name) {
    return 8e-9 / preset_network(name).between_nodes.beta_seconds_per_byte;
  };
  EXPECT_DOUBLE_EQ(gigabits("wan_100mbit"), 0.1);
  EXPECT_DOUBLE_EQ(gigabits("gige"), 1);
  EXPECT_DOUBLE_EQ(gigabits("10gbe"), 10);
  EXPECT_DOUBLE_EQ(gigabits("ib_fdr"), 40);
  EXPECT_DOUBLE_EQ(gigabits("aries"), 50);
}

TEST(Presets, that_do_not_exist_are_told_with_those_that_do) {
  try {
    preset_network("token_ring");
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("'token_ring'; there are gige, 10gbe, ib_fdr, aries"), std::string::npos);
  }
}

TEST(Network, that_cannot_be_is_told_by_the_field) {
  const auto broken = [](auto change) {
    Network network = slow_network();
    change(network);
    return error_of(network, 8);
  };
  const auto expect = [](const std::string& message, std::string_view words) {
    EXPECT_NE(message.find(words), std::string::npos) << message;
  };
  expect(broken([](Network& network) { network.between_nodes.alpha_seconds = -1; }), "between_nodes.alpha_seconds");
  expect(broken([](Network& network) { network.inside_node.beta_seconds_per_byte = 1 / 0.0; }),
         "inside_node.beta_seconds_per_byte");
  expect(broken([](Network& network) { network.ranks_per_node = 0; }), "ranks_per_node is 0");
  expect(broken([](Network& network) { network.oversubscription = 2; }), "needs nodes_per_leaf");
  expect(broken([](Network& network) { network.nodes_per_leaf = 4, network.oversubscription = 3; }), "divide the 4");
  expect(broken([](Network& network) { network.stragglers = {{8, 2}}; }), "stragglers names rank 8, but there are 8");
  expect(broken([](Network& network) {
           network.ranks_per_node = 4, network.slow_links = {{2, 2}};
         }),
         "slow_links names node 2, but there are 2");
  expect(broken([](Network& network) { network.slow_links = {{2, 0}}; }), "factor 0");
  EXPECT_THROW(SimWorld({.ranks = 2, .network = Network{.ranks_per_node = 0}}), Error);
}

}  // namespace
}  // namespace tulle
