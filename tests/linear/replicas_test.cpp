// Simulated ranks that share what is equal on all of them, against ranks that share nothing.
#include "tulle/linear/replicas.hpp"

#include <gtest/gtest.h>

#include "base/temporary_directory.hpp"
#include "linear/ranks.hpp"

namespace tulle::linear {
namespace {

using testing::cut_rows;
using testing::sample_rows;
using testing::train_in_simulation;

class SharedReplicas : public ::testing::TestWithParam<std::string> {
 protected:
  TrainOptions options() const {
    return {.penalty = {.l1 = 1e-4, .l2 = 1e-3}, .epochs = 3, .batch_rows = 10, .aggregation = GetParam()};
  }
  std::vector<Rows> parts_ = cut_rows(sample_rows({.rows = 300, .features = 400, .density = 0.05}), 5);
};
INSTANTIATE_TEST_SUITE_P(Aggregations, SharedReplicas,
                         ::testing::Values("sparse", "auto", "dense", "dense_ring", "dsar_split_allgather"));

TEST_P(SharedReplicas, TakeTheSameWayInTheSameTime) {
  TrainOptions options = this->options();
  const TrainResult apart = train_in_simulation(parts_, options)[0];
  options.replicas = make_replicas();
  const TrainResult shared = train_in_simulation(parts_, options)[0];
  EXPECT_LT(testing::largest_difference(apart.model, shared.model), 1e-5);
  for (std::size_t e = 0; e < 3; ++e) {
    EXPECT_NEAR(shared.epochs[e].objective, apart.epochs[e].objective, 1e-5);
    EXPECT_EQ(shared.epochs[e].bytes, apart.epochs[e].bytes);
    EXPECT_NEAR(shared.epochs[e].seconds, apart.epochs[e].seconds, 1e-9);
    EXPECT_NEAR(shared.epochs[e].communication_seconds, apart.epochs[e].communication_seconds, 1e-9);
  }
}

TEST_P(SharedReplicas, GoOnFromACheckpoint) {
  const testing::TemporaryDirectory scratch;
  TrainOptions options = this->options();
  options.replicas = make_replicas();
  const TrainResult whole = train_in_simulation(parts_, options)[0];
  options.checkpoint = {.path = scratch.path("run"), .seconds = 1e9};
  options.replicas = make_replicas();
  int asked = 0;
  options.stop_requested = [&] { return ++asked == 50; };
  EXPECT_TRUE(train_in_simulation(parts_, options)[0].was_stopped);
  options.stop_requested = nullptr;
  options.checkpoint.resume = true;
  options.replicas = make_replicas();
  const std::vector<float> resumed = train_in_simulation(parts_, options)[0].model.weights;
  ASSERT_EQ(resumed.size(), whole.model.weights.size());
  // What auto learned is not in the checkpoint: it may take other rows, which round otherwise.
  const double allowed = std::string(GetParam()) == "dense" ? 0 : 1e-5;
  for (std::size_t i = 0; i < resumed.size(); ++i) ASSERT_NEAR(resumed[i], whole.model.weights[i], allowed);
}

}  // namespace
}  // namespace tulle::linear
