// One of three ranks throws, returns, waits or calls something else, in every entry that ranks call together: the
// others get an error in time that says so, and nobody hangs.
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <ostream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "base/temporary_directory.hpp"
#include "tulle/collectives/collectives.hpp"
#include "tulle/collectives/gather_contributions.hpp"
#include "tulle/collectives/registry.hpp"
#include "tulle/comm/control.hpp"
#include "tulle/comm/settings.hpp"
#include "tulle/comm/threads.hpp"
#include "tulle/gradient/synchronizer.hpp"
#include "tulle/linear/kmeans.hpp"
#include "tulle/linear/pca.hpp"
#include "tulle/linear/train.hpp"
#include "tulle/tune/probe.hpp"

namespace tulle::testing {
namespace {

// An entry that ranks call together, on small data.
struct Entry {
  std::string name;
  std::function<void(Communicator&)> call;
  /// Ranks 0 and 2 of three cannot end without rank 1: else the one or the other may.
  bool needs_everybody = true;
};
void PrintTo(const Entry& each, std::ostream* out) { *out << each.name; }

constexpr std::uint64_t kDimension = 512;

AnyStream small_stream() {
  const std::uint32_t indices[] = {3, 70, 400};
  const float values[] = {1, 2, 3};
  return Stream<float>::from_sorted<std::uint32_t>(kDimension, indices, values);
}

// Rows of the registry, by streams and by accumulators.
void add_rows(std::vector<Entry>& entries) {
  for (const Algorithm& row : registry()) {
    if (row.needs == Needs::native_allreduce) continue;
    CallOptions options{.algorithm = row.name};
    // The rank that misbehaves is the one that rank 0 and 2 need.
    const bool has_root = row.kind == OperationKind::reduce || row.kind == OperationKind::broadcast;
    options.root = row.kind == OperationKind::broadcast ? 1 : 0;
    if (row.takes == Takes::accumulator) options.k = 16;
    const auto call = [kind = row.kind, takes = row.takes, options](Communicator& communicator) {
      std::vector<float> values(kDimension, 1.0f);
      if (takes == Takes::accumulator) {
        start_collective(kind, communicator, Accumulator(std::span<float>(values)), options).wait();
      } else {
        start_collective(kind, communicator, small_stream(), options).wait();
      }
    };
    const char* const of = row.takes == Takes::accumulator ? "accumulators" : "streams";
    entries.push_back({std::string(to_string(row.kind)) + "_" + std::string(row.name) + "_of_" + of, call, !has_root});
  }
}

void add_control(std::vector<Entry>& entries) {
  entries.push_back({"barrier", [](Communicator& c) { barrier(c); }});
  entries.push_back({"combine", [](Communicator& c) { combine(c, std::vector<double>{1}); }});
  entries.push_back({"gather_bytes", [](Communicator& c) { gather_bytes(c, Buffer::allocate(8)); }});
  entries.push_back({"broadcast_bytes", [](Communicator& c) { broadcast_bytes(c, Buffer::allocate(8), 1); }});
  entries.push_back({"fail_together", [](Communicator& c) { fail_together(c, nullptr); }});
  entries.push_back({"split", [](Communicator& c) { (void)c.split(0); }});
  entries.push_back({"require_same_settings", [](Communicator& c) {
                       const Setting settings[] = {{"paper", "a4"}};
                       require_same_settings(c, settings);
                     }});
  entries.push_back({"probe", [](Communicator& c) {
                       const ProbeOptions options{.largest_bytes = 1024, .rounds = 1, .kernels = false};
                       (void)probe(c, options);
                     }});
}

void add_gradient(std::vector<Entry>& entries) {
  using gradient::Parameter;
  using gradient::Synchronizer;
  const std::vector<Parameter> parameters = {{"weight", 4096}, {"bias", 8}};
  for (const char* const name : {"dense", "topk:1%", "spardl:1%", "powersgd:1"}) {
    const gradient::Recipe recipe = gradient::parse_recipe(name);
    const std::string label = std::string(name).substr(0, std::string(name).find(':'));
    entries.push_back(
        {"synchronizer_of_" + label, [=](Communicator& c) { (void)Synchronizer::make(c, parameters, recipe); }});
    entries.push_back({"step_of_" + label, [=](Communicator& c) {
                         Synchronizer synchronizer = Synchronizer::make(c, parameters, recipe);
                         std::vector<float> weight(4096, 1.0f), bias(8, 1.0f);
                         const std::span<float> gradients[] = {weight, bias};
                         synchronizer.step(gradients);
                       }});
  }
  entries.push_back({"save_checkpoint", [=](Communicator& c) {
                       static const TemporaryDirectory directory;
                       auto synchronizer = Synchronizer::make(c, parameters, gradient::parse_recipe("topk:1%"));
                       synchronizer.save_checkpoint(directory.path("state"));
                     }});
}

linear::Dataset small_data(int rank) {
  linear::Rows rows;
  for (std::uint32_t i = 0; i < 40; ++i) {
    rows.add(i % 7, 1.0f + static_cast<float>(i % 3));
    rows.add(8 + i % 5, 2.0f);
    rows.end_row((i + static_cast<std::uint32_t>(rank)) % 2 == 0 ? 1.0f : -1.0f);
  }
  return linear::Dataset(std::move(rows));
}

void add_linear(std::vector<Entry>& entries) {
  for (const auto solver : {linear::Solver::sgd, linear::Solver::scd}) {
    entries.push_back({solver == linear::Solver::sgd ? "train_by_sgd" : "train_by_scd", [=](Communicator& c) {
                         linear::Dataset data = small_data(solver == linear::Solver::sgd ? c.rank() : 0);
                         (void)linear::train(c, data, nullptr, {.solver = solver, .epochs = 2});
                       }});
  }
  entries.push_back({"kmeans", [](Communicator& c) {
                       linear::Dataset data = small_data(c.rank());
                       (void)linear::kmeans(c, data, {.clusters = 2, .iterations = 2});
                     }});
  entries.push_back({"pca", [](Communicator& c) {
                       linear::Dataset data = small_data(c.rank());
                       (void)linear::pca(c, data, {.components = 1, .iterations = 2});
                     }});
  entries.push_back({"evaluate", [](Communicator& c) {
                       linear::Dataset data = small_data(c.rank());
                       linear::LinearModel model;
                       model.features = 16;
                       model.classes = {-1, 1};
                       model.weights.resize(16);
                       model.intercepts.resize(1);
                       (void)linear::evaluate(c, data, model);
                     }});
}

std::vector<Entry> entries() {
  std::vector<Entry> all;
  add_control(all);
  add_rows(all);
  all.push_back({"gather_contributions", [](Communicator& c) { (void)gather_contributions(c, small_stream()); }});
  add_gradient(all);
  add_linear(all);
  return all;
}

// Far longer than a test takes; where a test is about deadlines they are short.
constexpr double kFarAway = 1e6, kSoon = 0.3;
constexpr int kOddOne = 1;

// What ranks 0 and 2 throw while rank 1 does something else than `entry`; empty: nothing.
std::vector<std::string> told(const Entry& entry, double deadline, const std::function<void(Communicator&)>& odd) {
  std::vector<std::string> texts(3);
  try {
    run_threads(3, [&](Communicator& communicator) {
      communicator.set_default_deadline(deadline);
      std::string& text = texts[static_cast<std::size_t>(communicator.rank())];
      try {
        communicator.rank() == kOddOne ? odd(communicator) : entry.call(communicator);
      } catch (const std::exception& error) {
        text = error.what();
        throw;
      }
    });
  } catch (const std::exception&) {
  }
  return texts;
}

bool has(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

class OneRank : public ::testing::TestWithParam<Entry> {
 protected:
  // Each of the others that has an error names `cause`; both have one where they need rank 1.
  static void expect_cause(const std::vector<std::string>& texts, std::string_view cause) {
    for (const std::size_t rank : {0, 2}) {
      if (texts[rank].empty() && !GetParam().needs_everybody) continue;
      EXPECT_TRUE(has(texts[rank], cause)) << "rank " << rank << ": " << texts[rank];
    }
    EXPECT_TRUE(!texts[0].empty() || !texts[2].empty() || !GetParam().needs_everybody);
  }
};
INSTANTIATE_TEST_SUITE_P(Entries, OneRank, ::testing::ValuesIn(entries()),
                         [](const auto& entry) { return entry.param.name; });

TEST_P(OneRank, calls_with_the_others_and_all_is_well) {
  const auto texts = told(GetParam(), kFarAway, GetParam().call);
  EXPECT_EQ(texts, std::vector<std::string>(3));
}

TEST_P(OneRank, throws) {
  expect_cause(told(GetParam(), kFarAway, [](Communicator&) { throw std::runtime_error("out of paper"); }),
               "out of paper");
}

TEST_P(OneRank, returns) {
  expect_cause(told(GetParam(), kFarAway, [](Communicator&) {}), "which left the job");
}

// Whose deadline passes first may wait for a rank that waits for rank 1; the one or the other names that.
TEST_P(OneRank, waits) {
  std::atomic<int> ended = 0;
  const Entry counted{.name = "", .call = [&](Communicator& communicator) {
                        struct Count {
                          std::atomic<int>& ended;
                          ~Count() { ended += 1; }
                        } const count{ended};
                        GetParam().call(communicator);
                      }};
  const auto texts = told(counted, kSoon, [&](Communicator&) {
    while (ended < 2) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  });
  expect_cause(texts, "did not finish within");
}

TEST_P(OneRank, calls_something_else) {
  const auto texts = told(GetParam(), kFarAway, [](Communicator& communicator) { (void)communicator.split(7); });
  if (GetParam().name == "split") return;  // which is what it calls
  expect_cause(texts, "disagree");
  if (GetParam().needs_everybody) {
    EXPECT_TRUE(has(texts[kOddOne], "disagree")) << texts[kOddOne];
  }
}

}  // namespace
}  // namespace tulle::testing
