// New processes take the places of workers that were killed, on TCP.
#include "tulle/server/reception.hpp"

#include <fmt/format.h>

#include <chrono>
#include <fstream>
#include <sstream>
#include <thread>

#include "comm_tcp/processes.hpp"
#include "server/training.hpp"
#include "tulle/comm/rendezvous.hpp"
#include "tulle/comm/tcp.hpp"
#include "tulle/comm/threads.hpp"

namespace tulle::server {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)
using tulle::testing::run_processes;
using tulle::testing::TemporaryDirectory;

constexpr std::uint64_t kVersions = 12;

// What processes tell each other by files, which appear whole.
class Board {
 public:
  explicit Board(std::string directory) : directory_(std::move(directory)) {}
  void put(const std::string& name, const std::string& text) const {
    std::ofstream(path(name + ".next")) << text;
    std::filesystem::rename(path(name + ".next"), path(name));
  }
  std::string wait_for(const std::string& name) const {
    while (!std::filesystem::exists(path(name))) std::this_thread::sleep_for(std::chrono::milliseconds(2));
    std::ostringstream text;
    text << std::ifstream(path(name)).rdbuf();
    return text.str();
  }

 private:
  std::string path(const std::string& name) const { return directory_ + "/board_" + name; }
  std::string directory_;
};

struct Scene {
  int servers = 1, workers = 3;
  std::string directory;
  Options options = {};
  int victim = 0;  ///< rank of the worker that kills itself
  std::vector<Parameter> parameters = sample_parameters();

  int ranks() const { return servers + workers; }
  Board board() const { return Board(directory); }
  Communicator connected(int rank) const {
    return connect(*directory_rendezvous({.path = directory, .rank = rank, .size = ranks()}));
  }
};

std::string text_of(const std::vector<Values>& weights) {
  std::string text;
  for (const Values& values : weights) {
    for (const float value : values) text += fmt::format("{:a} ", value);
  }
  return text;
}

std::string serve(const Scene& scene, int rank) {
  Communicator communicator = scene.connected(rank);
  Communicator servers = communicator.split(0);
  Server server = Server::make(communicator, scene.parameters, scene.options, {.sgd = {.rate = 0.1}});
  for (const ParameterId id : server.shard()) server.set_weights(id, start_of(scene.parameters[id]));
  std::optional<Door> door;
  if (rank == 0) door.emplace(DoorOptions{.host = "127.0.0.1"});
  if (rank == 0) scene.board().put("port", std::to_string(door->port()));
  {
    const Reception reception(server, servers, door ? &*door : nullptr);
    server.run();
  }
  if (server.losses().size() != 1 || server.losses()[0].rank != scene.victim) return "the victim was not named";
  if (std::vector<int>(server.arrivals().begin(), server.arrivals().end()) != std::vector<int>{scene.victim}) {
    return "nobody took the victim's place";
  }
  if (server.stats().restarts != 1 || server.is_lost(scene.victim)) return "the newcomer was not counted";
  for (const ParameterId id : server.shard()) {
    if (server.version(id) != kVersions) return fmt::format("parameter {} has version {}", id, server.version(id));
  }
  return "";
}

// Trains to the last version. Who was there from the beginning waits in its fourth step for the newcomer.
std::string train(const Scene& scene, Worker& worker, int rank, bool is_newcomer) {
  std::vector<Values> weights;
  std::vector<std::span<float>> spans;
  for (const Parameter& parameter : scene.parameters) weights.emplace_back(parameter.size);
  for (Values& values : weights) spans.emplace_back(values);
  worker.join(spans);
  if (is_newcomer && worker.version(0) == 0) return "the newcomer got a model from the beginning";
  if (is_newcomer) scene.board().put("joined", "");
  const auto is_behind = [&](ParameterId id) { return worker.version(id) < kVersions; };
  for (int step = 0; is_behind(0) || is_behind(1) || is_behind(2); ++step) {
    if (!is_newcomer && step == 3 && rank == scene.victim) raise(SIGKILL);
    if (!is_newcomer && step == 3) scene.board().wait_for("joined");
    for (ParameterId id = 0; id < weights.size(); ++id) {
      if (is_behind(id)) worker.push(id, pull_to_target(rank, worker.version(id), id, weights[id]));
    }
    for (ParameterId id = 0; id < weights.size(); ++id) worker.pull(id, weights[id]);
  }
  worker.leave();
  if (worker.stats().accepted < kVersions / 2) return fmt::format("only {} pushes counted", worker.stats().accepted);
  scene.board().put(fmt::format("weights.{}", rank), text_of(weights));
  return "";
}

std::string work(const Scene& scene, int rank) {
  Communicator communicator = scene.connected(rank);
  communicator.split(1);
  Worker worker = Worker::make(communicator, scene.parameters, scene.options);
  return train(scene, worker, rank, false);
}

std::string come_later(const Scene& scene) {
  const auto port = static_cast<std::uint16_t>(std::stoi(scene.board().wait_for("port")));
  TakenPlace taken = take_place({.host = "127.0.0.1", .port = port});
  if (taken.place.rank != scene.victim || taken.place.ranks != scene.ranks()) return "another place than the victim's";
  Worker worker = Worker::make(taken.communicator, scene.parameters, scene.options, taken.place);
  return train(scene, worker, scene.victim, true);
}

void expect_newcomer_trains(Scene scene) {
  const TemporaryDirectory directory;
  scene.directory = directory.path();
  scene.victim = scene.servers + 1;
  const auto body = [&](int rank) {
    if (rank == scene.ranks()) return come_later(scene);
    return rank < scene.servers ? serve(scene, rank) : work(scene, rank);
  };
  std::vector<int> expected(static_cast<std::size_t>(scene.ranks() + 1));
  expected[static_cast<std::size_t>(scene.victim)] = -SIGKILL;
  ASSERT_EQ(run_processes(scene.ranks() + 1, 120, body), expected);
  const std::string first = scene.board().wait_for(fmt::format("weights.{}", scene.servers));
  for (int rank = scene.servers; rank < scene.ranks(); ++rank) {
    EXPECT_EQ(scene.board().wait_for(fmt::format("weights.{}", rank)), first) << rank;
  }
}

TEST(Reception, a_new_process_takes_a_killed_workers_place_and_trains_to_the_end) {
  expect_newcomer_trains({.options = {.push = parse_recipe("three_lc"), .deadline_seconds = 100}});
}

TEST(Reception, of_two_servers_lets_a_newcomer_in_together) {
  expect_newcomer_trains(
      {.servers = 2, .workers = 2, .options = {.servers = 2, .push = parse_recipe("dense"), .deadline_seconds = 100}});
}

TEST(Reception, refuses_a_newcomer_with_other_options_and_goes_on) {
  const TemporaryDirectory directory;
  Scene scene{.workers = 2, .directory = directory.path(), .options = {.deadline_seconds = 100}, .victim = 2};
  const auto body = [&](int rank) -> std::string {
    if (rank > 2) {
      const auto port = static_cast<std::uint16_t>(std::stoi(scene.board().wait_for("port")));
      const TakenPlace taken = take_place({.host = "127.0.0.1", .port = port});
      Options others = scene.options;
      others.seed = 77;
      Worker worker = Worker::make(taken.communicator, scene.parameters, others, taken.place);
      Values hidden(700), output(130), bias(10);
      const std::vector<std::span<float>> weights = {hidden, output, bias};
      std::string told;
      try {
        worker.join(weights);
      } catch (const Error& error) {
        told = error.what();
      }
      scene.board().put("joined", "");
      return told.find("seed 77") != std::string::npos ? "" : "it was not refused: " + told;
    }
    if (rank > 0) return work(scene, rank);
    const std::string complaint = serve(scene, rank);  // names two losses
    return complaint == "the victim was not named" ? "" : "somebody came in: " + complaint;
  };
  EXPECT_EQ(run_processes(4, 120, body), (std::vector<int>{0, 0, -SIGKILL, 0}));
}

TEST(Reception, is_not_there_without_tcp) {
  run_threads(2, [](Communicator& communicator) {
    if (communicator.rank() == 1) return;
    Server server = Server::make(communicator, sample_parameters(), {}, {});
    Door door({.host = "127.0.0.1"});
    try {
      const Reception reception(server, communicator, &door);
      ADD_FAILURE() << "it was made";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::unsupported);
    }
  });
}

}  // namespace
}  // namespace tulle::server
