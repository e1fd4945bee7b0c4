// Trainings on TCP whose processes are killed, and that new ones join.
#include <fstream>

#include "comm_tcp/processes.hpp"
#include "gradient/training.hpp"
#include "tulle/base/crc32c.hpp"
#include "tulle/comm/admission.hpp"
#include "tulle/comm/tcp.hpp"
#include "tulle/gradient/elastic.hpp"

namespace tulle::gradient {
namespace {

using namespace testing;
using tulle::testing::run_processes;
using tulle::testing::TemporaryDirectory;

constexpr std::uint64_t kSteps = 24;
constexpr double kSeconds = 100;  // that a job may take at most

const std::vector<Parameter>& parameters() {
  static const std::vector<Parameter> all = {{"weight", 3000}, {"bias", 40}, {"norm", 20}};
  return all;
}

const Recipe& recipe() {
  static const Recipe topk = parse_recipe("topk:2%|dense_below:100");
  return topk;
}
constexpr SynchronizerOptions kOptions = {.replica_check_every = 2, .undo = true};

// A process that trains, and what it tells at the end.
struct Trainer {
  int number;  ///< of the process; its rank may change
  std::string directory;
  std::vector<Values> weights = {};
  std::function<void(std::uint64_t step)> disturb = [](std::uint64_t) {};
  ElasticOptions options = {};

  std::vector<std::span<std::byte>> arrays() {
    if (weights.empty()) {
      for (const Parameter& parameter : parameters()) weights.emplace_back(parameter.size, 0.0f);
    }
    std::vector<std::span<std::byte>> all;
    for (Values& values : weights) all.push_back(std::as_writable_bytes(std::span(values)));
    return all;
  }

  void train_step(Synchronizer& synchronizer, std::uint64_t step) {
    std::vector<Values> gradients;
    for (ParameterId id = 0; id < parameters().size(); ++id) {
      gradients.push_back(integer_gradient(parameters()[id].size, number, step, id));
      synchronizer.start(id, std::span<const float>(gradients.back()));
    }
    synchronizer.end_step();
    disturb(step);
    for (ParameterId id = 0; id < parameters().size(); ++id) {
      synchronizer.finish_into(id, gradients[id]);
      for (std::size_t i = 0; i < gradients[id].size(); ++i) weights[id][i] -= 0.25f * gradients[id][i];
    }
  }

  // Leaves what others compare: a CRC of the model, and who was lost and came.
  ElasticReport train(Communicator communicator, Synchronizer& synchronizer) {
    options.steps = kSteps;
    options.synchronizer = &synchronizer;
    options.arrays = arrays();
    options.agree = {.deadline_seconds = 60, .patience_seconds = 20};
    const ElasticReport report =
        run_elastic(communicator, options, [&](Communicator&, std::uint64_t step) { train_step(synchronizer, step); });
    std::uint32_t crc = 0;
    for (const Values& values : weights) crc = crc32c(std::as_bytes(std::span(values)), crc);
    std::ofstream(directory + "/model." + std::to_string(number)) << crc << " " << communicator.size() << std::flush;
    return report;
  }
};

Communicator connect_in(const std::string& directory, int rank, int ranks) {
  const auto rendezvous = directory_rendezvous({.path = directory, .rank = rank, .size = ranks});
  Communicator communicator = connect(*rendezvous);
  communicator.set_default_deadline(60);
  return communicator;
}

std::string model_of(const TemporaryDirectory& directory, int number) {
  std::string line;
  std::getline(std::ifstream(directory.path() + "/model." + std::to_string(number)), line);
  return line;
}

TEST(ElasticTcp, ProcessesThatAreKilledLeaveTheOthersWithOneModel) {
  for (const int victim : {0, 2}) {
    const TemporaryDirectory directory;
    const auto body = [&](int rank) -> std::string {
      Trainer trainer{rank, directory.path()};
      trainer.disturb = [&](std::uint64_t step) {
        if (rank == victim && step == 7) raise(SIGKILL);
      };
      Communicator communicator = connect_in(directory.path(), rank, 3);
      Synchronizer synchronizer = Synchronizer::make(communicator, parameters(), recipe(), kOptions);
      const ElasticReport report = trainer.train(communicator, synchronizer);
      if (report.steps != kSteps) return "not all steps are completed";
      return report.lost.size() == 1 && report.lost[0].rank == victim ? "" : "somebody else is lost";
    };
    std::vector<int> expected(3, 0);
    expected[static_cast<std::size_t>(victim)] = -SIGKILL;
    EXPECT_EQ(run_processes(3, kSeconds, body), expected);
    const std::string model = model_of(directory, 1);
    EXPECT_TRUE(model.ends_with(" 2")) << model;
    EXPECT_EQ(model_of(directory, victim == 0 ? 2 : 0), model);
  }
}

// ---------------------------------------------------------------- newcomers

std::string port_file(const std::string& directory) { return directory + "/port"; }

// The file appears whole.
void tell_port(const std::string& directory, std::uint16_t port) {
  std::ofstream(port_file(directory) + ".new") << port << std::flush;
  std::filesystem::rename(port_file(directory) + ".new", port_file(directory));
}

std::uint16_t wait_for_port(const std::string& directory) {
  while (!std::filesystem::exists(port_file(directory))) usleep(1000);
  std::uint16_t port = 0;
  std::ifstream(port_file(directory)) >> port;
  return port;
}

// Three processes train; after eight steps a fourth is with them; in step 15 one of the first three is killed.
TEST(ElasticTcp, ANewcomerTakesPartAndStaysWhenAnOldRankIsKilled) {
  constexpr int kOld = 3, kVictim = 1;
  constexpr std::uint64_t kGrowAfter = 8, kKilledIn = 15;
  const TemporaryDirectory directory;
  const auto old_rank = [&](int rank) -> std::string {
    Trainer trainer{rank, directory.path()};
    trainer.disturb = [&](std::uint64_t step) {
      if (rank == kVictim && step == kKilledIn) raise(SIGKILL);
    };
    Communicator communicator = connect_in(directory.path(), rank, kOld);
    std::optional<Door> door;
    if (rank == 0) door.emplace(DoorOptions{.host = "127.0.0.1"});
    if (door) tell_port(directory.path(), door->port());
    bool is_grown = false;
    trainer.options.grow_every = kGrowAfter;
    trainer.options.grow = [&](Communicator& members) {
      Communicator grown = members;
      while (!is_grown && grown.size() == kOld) grown = admit(grown, door ? &*door : nullptr);
      is_grown = true;
      return grown;
    };
    Synchronizer synchronizer = Synchronizer::make(communicator, parameters(), recipe(), kOptions);
    const ElasticReport report = trainer.train(communicator, synchronizer);
    if (report.joined != 1) return "nobody joined";
    return report.lost.size() == 1 && report.lost[0].rank == kVictim ? "" : "somebody else is lost";
  };
  const auto newcomer = [&](int number) -> std::string {
    Trainer trainer{number, directory.path()};
    Communicator communicator = join({.host = "127.0.0.1", .port = wait_for_port(directory.path())});
    communicator.set_default_deadline(60);
    const auto arrays = trainer.arrays();
    Synchronizer synchronizer = join_elastic(communicator, parameters(), recipe(), kOptions, arrays);
    if (synchronizer.completed_steps() != kGrowAfter) return "it came too late";
    if (std::ranges::count(trainer.weights[0], 0.0f) == std::ssize(trainer.weights[0])) return "it took no model";
    trainer.options.grow_every = kGrowAfter;
    trainer.options.grow = [](Communicator& members) { return members; };
    const ElasticReport report = trainer.train(communicator, synchronizer);
    return report.lost.size() == 1 && report.lost[0].rank == kVictim ? "" : "somebody else is lost";
  };
  const auto body = [&](int number) { return number < kOld ? old_rank(number) : newcomer(number); };
  EXPECT_EQ(run_processes(kOld + 1, kSeconds, body), (std::vector<int>{0, -SIGKILL, 0, 0}));
  const std::string model = model_of(directory, 0);
  EXPECT_TRUE(model.ends_with(" 3")) << model;
  EXPECT_EQ(model_of(directory, 2), model);
  EXPECT_EQ(model_of(directory, 3), model);
}

}  // namespace
}  // namespace tulle::gradient
