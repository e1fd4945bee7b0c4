// Wrong uses of the library's entries, and the error that each must give: a kind, and the words that name what is
// wrong.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <ostream>
#include <string>

#include "comm/loopback.hpp"
#include "tulle/collectives/collectives.hpp"
#include "tulle/comm/admission.hpp"
#include "tulle/comm/agree.hpp"
#include "tulle/comm/control.hpp"
#include "tulle/comm/datagram.hpp"
#include "tulle/comm/rendezvous.hpp"
#include "tulle/comm/tcp.hpp"
#include "tulle/comm/threads.hpp"
#include "tulle/gradient/synchronizer.hpp"
#include "tulle/linear/kmeans.hpp"
#include "tulle/linear/pca.hpp"
#include "tulle/linear/train.hpp"
#include "tulle/server/server.hpp"
#include "tulle/server/worker.hpp"
#include "tulle/tune/probe.hpp"

namespace tulle::testing {
namespace {

struct WrongUse {
  std::string name;
  std::function<void(Communicator&)> use;
  std::string named;  ///< what the error's text must hold
};
void PrintTo(const WrongUse& each, std::ostream* out) { *out << each.name; }

const double kNan = std::nan("");
constexpr double kInfinity = std::numeric_limits<double>::infinity();

void reduce(Communicator& communicator, const CallOptions& options) {
  std::vector<float> values(64, 1.0f);
  allreduce(communicator, Accumulator(std::span<float>(values)), options);
}

linear::Dataset some_rows() {
  linear::Rows rows;
  for (std::uint32_t i = 0; i < 8; ++i) {
    rows.add(i % 3, 1.0f);
    rows.end_row(i % 2 == 0 ? 1.0f : -1.0f);
  }
  return linear::Dataset(std::move(rows));
}

void train(Communicator& communicator, const linear::TrainOptions& options) {
  linear::Dataset data = some_rows();
  (void)linear::train(communicator, data, nullptr, options);
}

void synchronize(Communicator& communicator, const std::vector<gradient::Parameter>& parameters,
                 const std::vector<float>& gradient) {
  auto synchronizer = gradient::Synchronizer::make(communicator, parameters, gradient::parse_recipe("topk:10%"));
  std::vector<float> values = gradient;
  const std::span<float> gradients[] = {values};
  synchronizer.step(gradients);
}

std::vector<WrongUse> wrong_uses() {
  using C = Communicator;
  return {
      {"nodes_of_fewer_ranks", [](C& c) { c.set_nodes(std::vector<int>(5)); }, "5 nodes given for 2 ranks"},
      {"a_channel_beyond_all", [](C& c) { (void)c.channel(1u << 24); }, "channel 16777216 is not below"},
      {"a_port_beyond_all", [](C& c) { DatagramPort port(c, 1u << 24); }, "datagram port 16777216 is not below"},
      {"a_port_twice", [](C& c) { DatagramPort one(c, 3), two(c, 3); }, "datagram port 3 is open already"},
      {"waiting_for_no_time", [](C& c) { (void)DatagramPort(c).receive_for(kNan); }, "during nan s"},
      {"a_root_that_is_no_rank", [](C& c) { broadcast_bytes(c, {}, 2); }, "root 2 is not a rank"},
      {"a_negative_root", [](C& c) { broadcast_bytes(c, {}, -1); }, "root -1 is not a rank"},
      {"another_heartbeat", [](C& c) { c.start_heartbeat({.interval_seconds = -1, .limit_seconds = 5}); },
       "a heartbeat every -1 s"},
      {"a_heartbeat_of_no_time", [](C& c) { c.start_heartbeat({.interval_seconds = kNan}); },
       "a heartbeat every nan s"},
      {"a_patience_without_end", [](C& c) { agree(c, 0, {.deadline_seconds = 1, .patience_seconds = kInfinity}); },
       "a patience of inf s"},
      {"a_deadline_of_no_time", [](C& c) { reduce(c, {.density = 0.1, .deadline_seconds = kNan}); }, "nan s"},
      {"a_deadline_before_now", [](C& c) { reduce(c, {.density = 0.1, .deadline_seconds = -kInfinity}); }, "-inf s"},
      {"a_row_that_is_not_there", [](C& c) { reduce(c, {.algorithm = "ssar_recursive_duble", .k = 4}); },
       "'ssar_recursive_duble'"},
      {"a_share_beyond_all", [](C& c) { reduce(c, {.density = 1.5}); }, "density"},
      {"a_share_of_nan", [](C& c) { reduce(c, {.density = kNan}); }, "density"},
      {"no_k", [](C& c) { reduce(c, {.algorithm = "spardl"}); }, "k"},
      {"teams_that_do_not_divide", [](C& c) { reduce(c, {.algorithm = "spardl", .k = 4, .teams = 3}); }, "teams"},
      {"an_index_beyond_the_dimension",
       [](C&) {
         const std::uint32_t indices[] = {12};
         const float values[] = {1};
         (void)Stream<float>::from_sorted<std::uint32_t>(10, indices, values);
       },
       "index 12 is outside [0, 10)"},
      {"indices_in_disorder",
       [](C&) {
         const std::uint32_t indices[] = {7, 3};
         const float values[] = {1, 1};
         (void)Stream<float>::from_sorted<std::uint32_t>(10, indices, values);
       },
       "index 3 follows index 7"},
      {"a_stage_that_is_not_there", [](C&) { (void)gradient::parse_recipe("frobnicate:1%"); }, "frobnicate"},
      {"a_parameter_without_a_name",
       [](C& c) {
         synchronize(c, {{"", 4}}, std::vector<float>(4));
       },
       "name"},
      {"two_parameters_of_one_name",
       [](C& c) {
         synchronize(c, {{"w", 4}, {"w", 4}}, std::vector<float>(4));
       },
       "w"},
      {"a_gradient_of_another_size",
       [](C& c) {
         synchronize(c, {{"weight", 4}}, std::vector<float>(5));
       },
       "weight"},
      {"a_probe_of_no_rounds", [](C& c) { (void)probe(c, {.rounds = 0}); }, "rounds"},
      {"no_epochs", [](C& c) { train(c, {.epochs = 0}); }, "epochs"},
      {"a_rate_below_0", [](C& c) { train(c, {.rate = -1}); }, "rate"},
      {"a_rate_of_nan", [](C& c) { train(c, {.rate = kNan}); }, "rate"},
      {"a_tolerance_of_nan", [](C& c) { train(c, {.tolerance = kNan}); }, "tolerance"},
      {"no_clusters",
       [](C& c) {
         linear::Dataset data = some_rows();
         (void)linear::kmeans(c, data, {.clusters = 0});
       },
       "clusters"},
      {"no_components",
       [](C& c) {
         linear::Dataset data = some_rows();
         (void)linear::pca(c, data, {.components = 0});
       },
       "components"},
      {"no_servers",
       [](C& c) {
         (void)server::Server::make(c, {{"w", 4}}, {.servers = 0}, {});
       },
       "0 servers among 2 ranks"},
      {"servers_alone",
       [](C& c) {
         (void)server::Server::make(c, {{"w", 4}}, {.servers = 2}, {});
       },
       "2 servers"},
      {"a_server_with_a_deadline_of_nan",
       [](C& c) {
         (void)server::Server::make(c, {{"w", 4}}, {.servers = 1, .deadline_seconds = kNan}, {});
       },
       "deadline_seconds"},
      {"a_rank_beyond_the_job",
       [](C&) { (void)address_rendezvous({.host = "127.0.0.1", .port = 1, .rank = 5, .size = 3}); }, "5"},
      {"a_rendezvous_with_a_deadline_of_nan",
       [](C&) {
         (void)address_rendezvous({.host = "127.0.0.1", .port = 1, .rank = 0, .size = 2, .deadline_seconds = kNan});
       },
       "deadline"},
      {"a_directory_with_a_deadline_below_0",
       [](C&) { (void)directory_rendezvous({.path = "/tmp", .rank = 0, .size = 2, .deadline_seconds = -1}); },
       "deadline"},
      {"joining_with_a_deadline_of_nan",
       [](C&) { (void)join({.host = "127.0.0.1", .port = 1, .deadline_seconds = kNan}); }, "deadline"},
      {"connecting_with_a_deadline_of_nan",
       [](C&) {
         const auto meeting = address_rendezvous({.host = "127.0.0.1", .port = 1, .rank = 0, .size = 1});
         (void)connect(*meeting, {.deadline_seconds = kNan});
       },
       "deadline"},
  };
}

class Wrong : public ::testing::TestWithParam<WrongUse> {};
INSTANTIATE_TEST_SUITE_P(Uses, Wrong, ::testing::ValuesIn(wrong_uses()),
                         [](const auto& use) { return use.param.name; });

TEST_P(Wrong, is_bad_input_on_each_rank_that_names_it_and_the_communicator_stays_usable) {
  run_threads(2, [](Communicator& communicator) {
    communicator.set_default_deadline(1e6);
    const auto [kind, text] = error_of([&] { GetParam().use(communicator); });
    EXPECT_EQ(kind, ErrorKind::bad_input) << text;
    EXPECT_NE(text.find(GetParam().named), std::string::npos) << text;
    barrier(communicator);
  });
}

}  // namespace
}  // namespace tulle::testing
