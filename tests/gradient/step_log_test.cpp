#include "tulle/gradient/step_log.hpp"

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "base/temporary_directory.hpp"
#include "gradient/training.hpp"
#include "tulle/base/error.hpp"

namespace tulle::gradient {
namespace {

using namespace testing;
using tulle::testing::TemporaryDirectory;
using Json = nlohmann::json;

const std::vector<Parameter> kParameters = {{"large \"one\"", 3000}, {"small", 40}, {"smaller", 30}};

// Steps of three ranks on threads, with a log.
void log_steps(const StepLogOptions& files, int steps, const SynchronizerOptions& options = {}) {
  run_threads(3, [&](Communicator& communicator) {
    Synchronizer synchronizer = Synchronizer::make(
        communicator, kParameters, parse_recipe("topk:1%|dense_below:100|momentum:0.5|masking"), options);
    StepLog log = StepLog::open(synchronizer, files);
    for (int step = 0; step < steps; ++step) {
      std::vector<Values> values;
      for (ParameterId id = 0; id < 3; ++id) {
        values.push_back(
            integer_gradient(kParameters[id].size, communicator.rank(), static_cast<std::uint64_t>(step), id));
      }
      const std::span<float> spans[] = {values[0], values[1], values[2]};
      synchronizer.step(spans);
      log.add_step({.loss = 1.0 / (step + 1)});
    }
    log.close();
  });
}

std::vector<Json> lines_of(const std::string& path) {
  std::vector<Json> lines;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) lines.push_back(Json::parse(line));
  return lines;
}

TEST(StepLog, HasALineForEachStepWithEveryParameter) {
  const TemporaryDirectory directory;
  log_steps({.lines = directory.path("steps.jsonl")}, 3, {.residual_norms = true});
  const std::vector<Json> lines = lines_of(directory.path("steps.jsonl"));
  ASSERT_EQ(lines.size(), 3u);
  for (std::size_t step = 0; step < 3; ++step) {
    const Json& line = lines[step];
    EXPECT_EQ(line["kind"], "stats");
    EXPECT_EQ(line["step"], step + 1);
    EXPECT_DOUBLE_EQ(line["loss"], 1.0 / static_cast<double>(step + 1));
    EXPECT_EQ(line["rank_seconds"].size(), 3u);
    EXPECT_GE(line["bytes_sent"].get<double>(), line["bytes_sent_max"].get<double>());
    EXPECT_GT(line["seconds"].get<double>(), 0);
    ASSERT_EQ(line["parameters"].size(), 3u);
    const Json& large = line["parameters"][0];
    EXPECT_EQ(large["parameter"], kParameters[0].name);
    EXPECT_EQ(large["route"], "selected");
    EXPECT_EQ(large["taken"], 30);
    EXPECT_GT(large["residual_over_gradient"].get<double>(), 0);
    for (const char* const stage : {"mask", "select", "encode", "exchange", "decode", "apply", "accumulate", "wait"}) {
      EXPECT_GT(large[std::string(stage) + "_seconds"].get<double>(), 0) << stage;
    }
    EXPECT_EQ(line["parameters"][1]["route"], "dense");
  }
}

TEST(StepLog, LeavesOutParametersWhereAskedAndAppends) {
  const TemporaryDirectory directory;
  for (int run = 0; run < 2; ++run) log_steps({.lines = directory.path("steps.jsonl"), .parameters = false}, 2);
  const std::vector<Json> lines = lines_of(directory.path("steps.jsonl"));
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_FALSE(lines[0].contains("parameters"));
}

// Slices of a thread must not overlap unless one is inside of the other, or viewers draw nonsense.
TEST(StepLog, WritesATraceOfAllRanksThatViewersUnderstand) {
  const TemporaryDirectory directory;
  log_steps({.trace = directory.path("trace.json"), .trace_steps = 2}, 4);
  std::ifstream file(directory.path("trace.json"));
  const Json trace = Json::parse(file);
  std::map<std::pair<int, int>, std::vector<std::pair<double, double>>> slices;
  std::set<std::string> names, threads;
  for (const Json& event : trace["traceEvents"]) {
    if (event["ph"] == "M") {
      threads.insert(event["args"]["name"]);
      continue;
    }
    ASSERT_EQ(event["ph"], "X");
    names.insert(event["name"]);
    const double begin = event["ts"], length = event["dur"];
    EXPECT_GE(begin, -1e-3);
    EXPECT_GE(length, 0);
    if (event["name"] == "exchange") {
      EXPECT_LE(event["args"]["step"], 2);
    }
    slices[{event["pid"], event["tid"]}].emplace_back(begin, begin + length);
  }
  EXPECT_EQ(names, (std::set<std::string>{"accumulate", "apply", "exchange", "mask", "select", "wait"}));
  EXPECT_TRUE(threads.contains("rank 2") && threads.contains(kParameters[0].name));
  EXPECT_EQ(slices.size(), 9u);
  for (const auto& [thread, own] : slices) {
    ASSERT_EQ(own.size(), 12u);
    for (const auto& [begin, end] : own) {
      for (const auto& [other_begin, other_end] : own) {
        constexpr double kRounding = 2e-3;  // microseconds
        const bool are_apart = end <= other_begin + kRounding || other_end <= begin + kRounding;
        const bool is_inside = begin >= other_begin - kRounding && end <= other_end + kRounding;
        const bool holds = other_begin >= begin - kRounding && other_end <= end + kRounding;
        EXPECT_TRUE(are_apart || is_inside || holds) << begin << " " << end << " " << other_begin << " " << other_end;
      }
    }
  }
}

TEST(StepLog, ThatRankZeroCannotOpenIsAnErrorOnAllRanks) {
  const TemporaryDirectory directory;
  run_threads(2, [&](Communicator& communicator) {
    Synchronizer synchronizer = Synchronizer::make(communicator, {{"w", 4}}, parse_recipe("dense"));
    for (const StepLogOptions& files :
         {StepLogOptions{.lines = directory.path("no/such")}, StepLogOptions{.trace = directory.path("no/such")}}) {
      EXPECT_THROW((void)StepLog::open(synchronizer, files), Error);
    }
    Values gradient = {1, 2, 3, 4};
    const std::span<float> spans[] = {gradient};
    EXPECT_NO_THROW(synchronizer.step(spans));  // the communicator is as it was
  });
}

// Several synchronizers and logs on one communicator do not meet on a channel.
TEST(StepLog, HasAChannelThatNobodyElseUses) {
  run_threads(2, [](Communicator& communicator) {
    Synchronizer first = Synchronizer::make(communicator, kParameters, parse_recipe("dense"));
    EXPECT_GE(first.end_channel(), 1u + 3 + 1 + 1 + 1 + 1);  // parameters, control, one group, decisions, log
    Synchronizer second =
        Synchronizer::make(communicator, kParameters, parse_recipe("dense"), {.first_channel = first.end_channel()});
    StepLog log = StepLog::open(first, {});
    Values a[3], b[3];
    for (ParameterId id = 0; id < 3; ++id) {
      a[id] = integer_gradient(kParameters[id].size, communicator.rank(), 0, id);
      b[id] = integer_gradient(kParameters[id].size, communicator.rank(), 1, id);
    }
    // In another order on each rank: what shares a channel would be told.
    Synchronizer* const order[] = {communicator.rank() == 0 ? &first : &second,
                                   communicator.rank() == 0 ? &second : &first};
    for (Synchronizer* const synchronizer : order) {
      for (ParameterId id = 0; id < 3; ++id) {
        synchronizer->start(id, std::span<const float>(synchronizer == &first ? a[id] : b[id]));
      }
      synchronizer->end_step();
    }
    for (ParameterId id = 0; id < 3; ++id) {
      EXPECT_TRUE(first.finish_into(id, a[id]));
      EXPECT_TRUE(second.finish_into(id, b[id]));
    }
    log.add_step();
  });
}

}  // namespace
}  // namespace tulle::gradient
