// tulle train linear: linear models on any number of ranks, on MPI, threads or the simulator.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <chrono>
#include <cstdio>
#include <memory>
#include <optional>

#include "base/json_lines.hpp"
#include "base/output_file.hpp"
#include "base/progress.hpp"
#include "cli/commands.hpp"
#include "cli/common/data_flags.hpp"
#include "cli/common/interrupt.hpp"
#include "cli/common/numbers.hpp"
#include "cli/common/print.hpp"
#include "cli/train/train_report.hpp"
#include "tulle/base/crc32c.hpp"
#include "tulle/comm/control.hpp"
#include "tulle/comm/settings.hpp"

namespace tulle::cli {
namespace {

struct Data {
  linear::Dataset train;
  std::optional<linear::Dataset> held_out;
  double read_seconds = 0;
  double rows = 0, features = 0, bad_lines = 0;  ///< of all ranks
};

// Coordinate descent wants all rows on every rank; measuring divides them in any case.
Data open_parts(const TrainFlags& flags, linear::Part part) {
  linear::DataOptions options = flags.data;
  const bool is_replicated = flags.train.solver == linear::Solver::scd;
  options.part = is_replicated ? linear::Part{} : part;
  linear::Dataset all = open_data(flags.data_path, flags.launch.transport, options, part.index);
  if (flags.test_path) {
    options.part = part;
    return {.train = std::move(all),
            .held_out = open_data(*flags.test_path, flags.launch.transport, options, part.index)};
  }
  if (flags.held_out_share == 0) return {.train = std::move(all)};
  auto [held_out, rest] = all.split(flags.held_out_share, flags.train.seed);
  rest.set_bad_lines(all.bad_lines());
  return {.train = std::move(rest), .held_out = is_replicated ? held_out.divided(part) : std::move(held_out)};
}

// The size and the beginning, which has a checksum of the whole where 'tulle convert' made the file. Each rank takes a
// part of what it opens by its size.
Setting identity_of(const std::string& flag, const std::string& path, TransportChoice transport) {
  const ReaderPtr reader = open_reader(path, transport);
  std::vector<std::byte> head(std::min<std::uint64_t>(reader->size(), 1 << 16));
  reader->read_at(0, head);
  return {flag, fmt::format("{} bytes, the first {} of them with checksum {:08x}", reader->size(), head.size(),
                            crc32c(head))};
}

// What decides which rows a rank takes and how many trainings there are; the rest is the library's to compare.
std::vector<Setting> settings_of(const TrainFlags& flags) {
  std::vector<Setting> settings = {{"--model", flags.model_name},
                                   {"--solver", flags.train.solver == linear::Solver::sgd ? "sgd" : "scd"},
                                   {"--aggregation", fmt::format("{}", fmt::join(flags.aggregations, ","))},
                                   {"--hold-out", fmt::format("{}", flags.held_out_share)},
                                   {"--test", flags.test_path ? "given" : "none"},
                                   {"--format", flags.data.text.format == linear::TextFormat::csv ? "csv" : "libsvm"},
                                   {"--first-index", fmt::format("{}", flags.data.text.first_index)},
                                   {"--skip-bad", fmt::format("{}", flags.data.text.skip_bad)},
                                   {"--seed", fmt::format("{}", flags.train.seed)}};
  settings.push_back(identity_of("--data", flags.data_path, flags.launch.transport));
  if (flags.test_path) settings.push_back(identity_of("--test file", *flags.test_path, flags.launch.transport));
  return settings;
}

// What simulated ranks share in each of several runs, for as long as one of them is in it.
class SharedReplicas {
 public:
  explicit SharedReplicas(const TrainFlags& flags)
      : runs_(flags.aggregations.size()),
        shares_(flags.launch.transport == TransportChoice::sim && flags.train.solver == linear::Solver::sgd &&
                flags.train.staleness == 0) {}

  std::shared_ptr<linear::Replicas> of(std::size_t run) {
    if (!shares_) return nullptr;
    std::shared_ptr<linear::Replicas> replicas = runs_[run].lock();
    if (!replicas) runs_[run] = replicas = linear::make_replicas();
    return replicas;
  }

 private:
  std::vector<std::weak_ptr<linear::Replicas>> runs_;
  bool shares_;
};

// What rank 0 shows while it trains.
class Screen {
 public:
  Screen(const TrainFlags& flags, TrainRun& run, JsonLines* json)
      : flags_(flags), run_(run), json_(json), table_(flags), progress_("training", 1000) {}

  void begin(const Data& opened) {
    const linear::Dataset& data = opened.train;
    if (flags_.launch.network) print(fmt::format("network {}\n", describe(*flags_.launch.network)));
    print(fmt::format(
        "{} on {} ranks over {}, {} aggregation: {} rows of {} features, {} of them on rank 0, opened in {}\n",
        flags_.model_name, run_.ranks, run_.transport, run_.aggregation, opened.rows, opened.features, data.rows(),
        format_seconds(opened.read_seconds)));
    if (opened.bad_lines > 0) print(fmt::format("skipped {} bad lines\n", opened.bad_lines));
    print(table_.header());
  }
  void tell(const std::string& message) {
    progress_.clear();
    print(message + "\n");
  }
  void labels(std::uint64_t rows, std::uint64_t all) {
    if (!labels_) labels_.emplace("counting labels", all);
    labels_->advance(rows, "");
  }
  void step(std::uint64_t done, std::uint64_t all) {
    labels_.reset();
    const std::uint64_t reached = all > 0 ? done * 1000 / all : 0;
    progress_.advance(reached - std::min(reached, reached_), "");
    reached_ = std::max(reached, reached_);
  }
  void epoch(const linear::EpochMetrics& metrics) {
    progress_.clear();
    print(table_.row(metrics));
    if (json_ != nullptr) json_->append(epoch_json(flags_, run_, metrics));
  }
  void end(const linear::TrainResult& result) {
    progress_.clear();
    if (!result.objective) return;
    print(fmt::format("objective {:.5f} on all rows, {} of {} weights are not 0\n", *result.objective,
                      result.model.nonzeros(), result.model.weights.size()));
  }

 private:
  const TrainFlags& flags_;
  const TrainRun& run_;
  JsonLines* json_;
  EpochTable table_;
  std::optional<Progress> labels_;
  Progress progress_;
  std::uint64_t reached_ = 0;
};

Task<TrainRun> train_once(Communicator communicator, const TrainFlags& flags, Data& data, std::string aggregation,
                          std::shared_ptr<linear::Replicas> replicas, JsonLines* json) {
  TrainRun run{
      .aggregation = aggregation, .ranks = communicator.size(), .transport = communicator.engine()->transport().name()};
  Screen screen(flags, run, json);
  if (communicator.rank() == 0) screen.begin(data);
  linear::TrainOptions options = flags.train;
  options.aggregation = aggregation;
  options.replicas = std::move(replicas);
  options.stop_requested = is_interrupted;
  options.on_epoch = [&](const linear::EpochMetrics& metrics) { screen.epoch(metrics); };
  options.on_step = [&](std::uint64_t done, std::uint64_t all) { screen.step(done, all); };
  options.on_message = [&](const std::string& message) { screen.tell(message); };
  options.on_labels = [&](std::uint64_t rows) { screen.labels(rows, data.train.rows()); };
  linear::Dataset* const held_out = data.held_out ? &*data.held_out : nullptr;
  run.result = co_await linear::train_task(communicator, data.train, held_out, options);
  if (communicator.rank() == 0) screen.end(run.result);
  co_return run;
}

void finish_run(const TrainFlags& flags, const std::vector<TrainRun>& runs) {
  const linear::TrainResult& last = runs.back().result;
  if (runs.size() > 1 && !last.was_stopped) print("\n" + comparison(runs));
  if (flags.model_path) linear::save_model(last.model, *flags.model_path);
  if (last.was_stopped && !flags.train.checkpoint.path.empty()) {
    print(fmt::format("stopped; the same command with --resume goes on from {}\n", flags.train.checkpoint.path));
  }
}

Task<int> train_rank(Communicator communicator, const TrainFlags& flags, SharedReplicas& shared, JsonLines* json) {
  std::vector<Setting> settings;
  const std::exception_ptr missing = failure_of([&] { settings = settings_of(flags); });
  auto missed = ifail_together(communicator, missing);
  co_await missed;
  auto compared = irequire_same_settings(communicator, settings);
  co_await compared;
  std::optional<Data> data;
  const std::exception_ptr failure = failure_of([&] {
    const auto start = std::chrono::steady_clock::now();
    data = open_parts(flags, {communicator.rank(), communicator.size()});
    data->read_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  });
  auto told = ifail_together(communicator, failure);
  co_await told;
  const std::vector<double> mine{static_cast<double>(data->train.rows()), static_cast<double>(data->train.bad_lines())};
  auto summed = icombine(communicator, mine);
  const std::vector<double> sums = co_await summed;
  const double copies = flags.train.solver == linear::Solver::scd ? communicator.size() : 1;
  data->rows = sums[0] / copies;
  const double my_features[] = {static_cast<double>(data->train.features())};
  auto largest = icombine(communicator, my_features, Op::max());
  const std::vector<double> most = co_await largest;
  data->features = most[0];
  data->bad_lines = sums[1] / copies;
  std::vector<TrainRun> runs;
  for (std::size_t i = 0; i < flags.aggregations.size(); ++i) {
    std::shared_ptr<linear::Replicas> replicas = shared.of(i);
    std::string aggregation = flags.aggregations[i];
    TrainRun run = co_await train_once(communicator, flags, *data, std::move(aggregation), std::move(replicas), json);
    runs.push_back(std::move(run));
    if (runs.back().result.was_stopped) break;
  }
  if (communicator.rank() == 0) finish_run(flags, runs);
  if (const std::string& error = runs.back().result.checkpoint_error; !error.empty()) {
    print_error(fmt::format("the checkpoint was not written: {}", error));
    co_return 1;
  }
  co_return runs.back().result.was_stopped ? 130 : 0;
}

constexpr const char* kExamples = R"(Examples:
  tulle train linear --data a9a.xz --model logistic --l2 1e-4 --hold-out 10% --out a9a.model
  mpirun -np 8 tulle train linear --data url.tcsr --test url.t.tcsr --aggregation dense,sparse --json epochs.jsonl
  tulle train linear --data url.tcsr --transport sim --ranks 128 --network aries
)";

}  // namespace

void add_train_linear_command(CLI::App& parent, Action& action) {
  CLI::App* const command = parent.add_subcommand("linear", "Train a linear model on sparse rows");
  command->footer(kExamples);
  const auto flags = std::make_shared<TrainFlags>();
  add_train_flags(*command, *flags);
  command->callback([flags, command, &action] {
    const Job job = this_job();
    finish(*flags, *command, job);
    const auto json = flags->json_path && job.prints()
                          ? told_by("--json", [&] { return std::make_shared<JsonLines>(*flags->json_path); })
                          : nullptr;
    for (const auto& [flag, path] : {std::pair("--out", flags->model_path.value_or("")),
                                     std::pair("--checkpoint", flags->train.checkpoint.path)}) {
      if (job.prints() && !path.empty()) told_by(flag, [&path = path] { require_writable(path); });
    }
    action = [flags, json] {
      catch_interrupts();
      SharedReplicas shared(*flags);
      return launch_tasks(flags->launch, [&](Communicator communicator) {
        return train_rank(std::move(communicator), *flags, shared, json.get());
      });
    };
  });
}

}  // namespace tulle::cli
