// Every recipe on real MPI, and checkpoints by MPI-IO.
#include <unistd.h>

#include <filesystem>
#include <numeric>

#include "comm_mpi/mpi_fixture.hpp"
#include "gradient/training.hpp"
#include "tulle/base/error.hpp"
#include "tulle/comm/control.hpp"
#include "tulle/comm/mpi_file.hpp"

namespace tulle::gradient {
namespace {

using namespace testing;

Training training_of(const Recipe& recipe, int ranks) {
  Training training{.ranks = ranks, .recipe = recipe, .steps = 3, .any_order = true};
  training.recipe.dense_below = 0;
  training.options = {.seed = 3, .reproducible = true};
  training.parameters = {
      {"hidden", 3000, Role::hidden, 50}, {"output", 700, Role::output}, {"bias", 10, Role::bias_or_norm}};
  training.gradient = [sizes = training.parameters](int rank, std::uint64_t step, ParameterId id) {
    return integer_gradient(sizes[id].size, rank, step, id);
  };
  return training;
}

// Rows are chosen by the profile and by who shares a node.
void place_as_simulated(Communicator& communicator) {
  std::vector<int> nodes(static_cast<std::size_t>(communicator.size()));
  std::iota(nodes.begin(), nodes.end(), 0);
  communicator.set_nodes(nodes);
  communicator.set_profile({});
}

TEST(RecipesOnMpi, GiveTheBitsOfTheSimulatorInAnyOrderOfStarts) {
  Communicator communicator = test_communicator();
  place_as_simulated(communicator);
  const auto me = static_cast<std::size_t>(communicator.rank());
  for (const Preset& preset : presets()) {
    SCOPED_TRACE(preset.name);
    const Training training = training_of(preset.recipe, communicator.size());
    const Trained simulated = train(training);
    Trained trained = room_for(training);
    Task<> running = train_rank(communicator, training, trained);
    run_task(communicator, running);
    for (ParameterId id = 0; id < training.parameters.size(); ++id) {
      for (std::uint64_t step = 0; step < training.steps; ++step) {
        ASSERT_EQ(trained.updates[step][id][me], simulated.updates[step][id][me]) << "in step " << step;
      }
      ASSERT_EQ(trained.residuals[id][me], simulated.residuals[id][me]);
    }
    barrier(communicator);
  }
}

// A path that all ranks know, which goes with the test.
class SharedPath {
 public:
  explicit SharedPath(Communicator& communicator) : communicator_(communicator) {
    std::string path = (std::filesystem::temp_directory_path() / "tulle_gradient_mpi_XXXXXX").string();
    if (communicator.rank() == 0) ::mkdtemp(path.data());
    const Buffer shared = broadcast_bytes(communicator, Buffer::copy_of(std::as_bytes(std::span(path))));
    directory_ = std::string(reinterpret_cast<const char*>(shared.data()), shared.size());
  }
  ~SharedPath() {
    barrier(communicator_);
    if (communicator_.rank() == 0) std::filesystem::remove_all(directory_);
  }
  std::string operator/(const char* name) const { return (std::filesystem::path(directory_) / name).string(); }

 private:
  Communicator& communicator_;
  std::string directory_;
};

void train_step(Synchronizer& synchronizer, const Training& training, std::uint64_t step) {
  std::vector<Values> values;
  std::vector<std::span<float>> spans;
  for (ParameterId id = 0; id < training.parameters.size(); ++id) {
    values.push_back(training.gradient(synchronizer.communicator().rank(), step, id));
  }
  for (Values& each : values) spans.emplace_back(each);
  synchronizer.step(spans);
}

TEST(CheckpointOnMpi, IsWrittenByMpiIoToOneFileForAll) {
  Communicator communicator = test_communicator();
  const Training training = training_of(parse_recipe("topk:2%|momentum:0.5|masking"), communicator.size());
  const SharedPath directory(communicator);
  Synchronizer saved = Synchronizer::make(communicator, training.parameters, training.recipe, training.options);
  for (std::uint64_t step = 0; step < 3; ++step) {
    train_step(saved, training, step);
    saved.save_checkpoint(directory / "state", CheckpointFiles::one_for_all, write_mpi_file);
  }
  EXPECT_TRUE(std::filesystem::is_regular_file(directory / "state"));
  EXPECT_FALSE(std::filesystem::exists(directory / "state.part"));
  SynchronizerOptions beside = training.options;
  beside.first_channel = saved.end_channel();
  Synchronizer loaded = Synchronizer::make(communicator, training.parameters, training.recipe, beside);
  loaded.load_checkpoint(directory / "state");
  EXPECT_EQ(loaded.steps(), 3u);
  for (ParameterId id = 0; id < training.parameters.size(); ++id) {
    EXPECT_EQ(copy_of(loaded.residual(id)), copy_of(saved.residual(id)));
    EXPECT_EQ(copy_of(loaded.momentum(id)), copy_of(saved.momentum(id)));
  }
}

TEST(CheckpointOnMpi, ThatOneRankCannotWriteLeavesTheOldOne) {
  Communicator communicator = test_communicator();
  const Training training = training_of(parse_recipe("topk:2%"), communicator.size());
  const SharedPath directory(communicator);
  Synchronizer synchronizer = Synchronizer::make(communicator, training.parameters, training.recipe, training.options);
  train_step(synchronizer, training, 0);
  synchronizer.save_checkpoint(directory / "state", CheckpointFiles::one_for_all, write_mpi_file);
  const Values before = copy_of(synchronizer.residual(0));
  train_step(synchronizer, training, 1);
  const WritePart fails_on_one = [&](const std::string& path, std::uint64_t offset, std::span<const std::byte> bytes) {
    write_mpi_file(communicator.rank() == 1 ? path + ".nowhere" : path, offset, bytes);
  };
  EXPECT_THROW(synchronizer.save_checkpoint(directory / "state", CheckpointFiles::one_for_all, fails_on_one), Error);
  synchronizer.load_checkpoint(directory / "state");
  EXPECT_EQ(copy_of(synchronizer.residual(0)), before);
}

}  // namespace
}  // namespace tulle::gradient
