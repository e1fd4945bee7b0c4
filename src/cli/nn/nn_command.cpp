#include "cli/nn/nn_command.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <mutex>

#include "base/json_lines.hpp"
#include "base/output_file.hpp"
#include "base/progress.hpp"
#include "cli/common/interrupt.hpp"
#include "cli/common/print.hpp"
#include "cli/nn/nn_report.hpp"
#include "tulle/comm/control.hpp"
#include "tulle/comm/settings.hpp"
#include "tulle/gradient/synchronizer.hpp"
#include "tulle/server/reception.hpp"

namespace tulle::cli {
namespace {

// Read once by the ranks of a process, which share it.
class SharedData {
 public:
  std::shared_ptr<const nn::DataSet> open(const NnFlags& flags) {
    const std::lock_guard lock(mutex_);
    if (!data_) {
      auto data = std::make_shared<const nn::DataSet>(nn::open_data(flags.data));
      nn::require_fit(flags.network, *data);
      data_ = std::move(data);
    }
    return data_;
  }

 private:
  std::mutex mutex_;
  std::shared_ptr<const nn::DataSet> data_;
};

std::string samples_text(const nn::DataSet& data) {
  const auto text = [](std::uint64_t train, std::uint64_t test, const char* what) {
    return fmt::format("{} {} and {} held out", train, what, test);
  };
  if (data.text) return text(data.text->train.size(), data.text->test.size(), "symbols");
  if (data.train_utterances) return text(data.train_utterances->size(), data.test_utterances->size(), "sentences");
  if (data.train_features) return text(data.train_features->size(), data.test_features->size(), "rows");
  return text(data.train->size(), data.test->size(), "pictures");
}

// A set may be there in part, such as one of CIFAR-10's five batches: files by their names, and where they are.
std::string files_text(const nn::DataSet& data) {
  const std::filesystem::path directory = std::filesystem::path(data.train_files.front()).parent_path();
  const auto names = [&](const std::vector<std::string>& files) {
    std::string text;
    for (const std::string& file : files) {
      const std::filesystem::path path(file);
      text += (text.empty() ? "" : ", ") + (path.parent_path() == directory ? path.filename().string() : file);
    }
    return text;
  };
  return fmt::format("{}: trains on {}; measures on {}\n", directory.empty() ? "." : directory.string(),
                     names(data.train_files), data.test_files.empty() ? "its last tenth" : names(data.test_files));
}

// Whose running means the accuracies are of, where the network has some.
std::string batch_norm_text(const NnFlags& flags) {
  if (!has_batch_norm(flags.network.model)) return "";
  return fmt::format(", BatchNorm {}", nn_batch_norm(flags));
}

// What rank 0 shows while it trains.
class NnScreen {
 public:
  NnScreen(const NnFlags& flags, const NnRun& run, JsonLines* json)
      : flags_(flags), run_(run), json_(json), table_(nn_epoch_table(flags)), progress_("training", 1000) {}

  void begin(const nn::DataSet& data) {
    print(fmt::format("{} on {}, {} over {}, recipe {}: {}, batches of {} a rank{}\n", flags_.network.model, data.name,
                      nn_ranks_text(flags_, run_.ranks), run_.transport, run_.recipe, samples_text(data),
                      flags_.train.batch, batch_norm_text(flags_)));
    print(table_.header());
  }
  void tell(const std::string& message) {
    progress_.clear();
    print(message + "\n");
  }
  void step(std::uint64_t done, std::uint64_t all) {
    const std::uint64_t reached = all > 0 ? done * 1000 / all : 0;
    progress_.advance(reached - std::min(reached, reached_), "");
    reached_ = std::max(reached, reached_);
  }
  void epoch(const nn::EpochMetrics& metrics) {
    progress_.clear();
    print(table_.row(nn_epoch_cells(flags_, metrics)));
    if (json_ != nullptr) json_->append(nn_epoch_json(flags_, run_, metrics));
  }

 private:
  const NnFlags& flags_;
  const NnRun& run_;
  JsonLines* json_;
  Table table_;
  Progress progress_;
  std::uint64_t reached_ = 0;
};

void write_trace(const NnFlags& flags, const NnRun& run, gradient::TrainingTrace trace) {
  trace.model = flags.network.model;
  trace.origin = fmt::format("recorded on rank 0 of {}", run.ranks);
  const std::string text = to_text(trace);
  OutputFile file(*flags.trace_path);
  file.write(std::as_bytes(std::span(text)));
  file.commit();
}

nn::TrainerOptions options_of(const NnFlags& flags, const NamedRecipe& recipe) {
  nn::TrainerOptions options = flags.train;
  options.recipe = recipe.recipe;
  options.optimizer = optimizer_for(flags, recipe.recipe);
  options.rate = rate_for(flags, recipe.recipe);
  options.stop_requested = is_interrupted;
  return options;
}

NnRun train_once(Communicator& world, const NnFlags& flags, const std::shared_ptr<const nn::DataSet>& data,
                 const NamedRecipe& recipe, JsonLines* json) {
  Communicator communicator = world.split(0);  // what one recipe's sums taught is not another's
  NnRun run{.recipe = recipe.text,
            .ranks = communicator.size(),
            .transport = std::string(communicator.engine()->transport().name())};
  NnScreen screen(flags, run, json);
  if (communicator.rank() == 0) screen.begin(*data);
  nn::TrainerOptions options = options_of(flags, recipe);
  options.on_epoch = [&](const nn::EpochMetrics& metrics) { screen.epoch(metrics); };
  options.on_step = [&](std::uint64_t done, std::uint64_t all) { screen.step(done, all); };
  options.on_message = [&](const std::string& message) { screen.tell(message); };
  if (flags.trace_path && communicator.rank() == 0) {
    options.on_trace = [&](gradient::TrainingTrace trace) { write_trace(flags, run, std::move(trace)); };
  }
  try {
    run.result = nn::train(communicator, flags.network, data, options);
  } catch (const Error& error) {  // maybe before the training began, of which others would not hear
    break_communicator(communicator, error);
    throw;
  }
  return run;
}

void finish_runs(const NnFlags& flags, const std::vector<NnRun>& runs) {
  const nn::TrainResult& last = runs.back().result;
  if (flags.shows_report) {
    for (const NnRun& run : runs) print(fmt::format("\n{}:\n{}", run.recipe, run.result.report));
  }
  if (runs.size() > 1 && !last.was_stopped) print("\n" + nn_comparison(runs));
  if (last.was_stopped && !flags.train.checkpoint.path.empty()) {
    print(fmt::format("stopped; the same command with --resume goes on from {}\n", flags.train.checkpoint.path));
  }
}

// Only now is it known how many ranks a launcher has started.
void require_workers(const NnFlags& flags, int ranks) {
  const int servers = flags.train.server.servers;
  if (servers == 0 || !flags.workers || servers + *flags.workers == ranks) return;
  throw Error(ErrorKind::bad_input,
              fmt::format("--server {} and --workers {} are {} ranks, and the launcher started {}", servers,
                          *flags.workers, servers + *flags.workers, ranks));
}

// Larger than what recipes send whole.
constexpr std::uint64_t kRehearsedValues = 1 << 16;

// A recipe that cannot run on these ranks, such as with teams that do not divide them, is told before others have
// trained: an exchange of a few values.
void rehearse(Communicator& world, const NnFlags& flags, const NamedRecipe& recipe) try {
  const std::uint64_t size = std::max(kRehearsedValues, recipe.recipe.dense_below + 1);
  auto synchronizer = gradient::Synchronizer::make(world.split(0), {{.name = "rehearsal", .size = size}}, recipe.recipe,
                                                   flags.train.synchronizer);
  std::vector<float> gradient(size);
  for (std::size_t i = 0; i < gradient.size(); ++i) gradient[i] = static_cast<float>(i % 97) - 48;
  const std::vector<float> weights(recipe.recipe.weight_decay > 0 ? size : 0);
  while (!synchronizer.count_local_step()) continue;
  synchronizer.start(0, gradient, weights);
  synchronizer.end_step();
  synchronizer.finish(0);
} catch (const Error& error) {
  throw Error(error.kind(), fmt::format("--compare {}: {}", recipe.text, error.what()));
}

// A recipe that fails beside others, such as one that diverges, takes nothing from them. Gives how many failed.
int train_all(Communicator& world, const NnFlags& flags, const std::shared_ptr<const nn::DataSet>& data,
              JsonLines* json, std::vector<NnRun>& runs) {
  int failed = 0;
  for (const NamedRecipe& recipe : flags.recipes) {
    std::optional<NnRun> run;
    try {
      fail_together(world, failure_of([&] { run = train_once(world, flags, data, recipe, json); }));
    } catch (const Error& error) {
      failed += 1;
      if (world.rank() == 0) print_error(fmt::format("--compare {}: {}", recipe.text, error.what()));
      continue;
    }
    runs.push_back(std::move(*run));
    if (runs.back().result.was_stopped) break;
  }
  return failed;
}

// Before ranks take different ways. What one training needs is compared by nn::train().
void require_same_runs(Communicator& communicator, const NnFlags& flags) {
  std::vector<std::string> recipes;
  for (const NamedRecipe& recipe : flags.recipes) recipes.push_back(to_string(recipe.recipe));
  const Setting settings[] = {{"servers", fmt::format("{}", flags.train.server.servers)},
                              {"workers", flags.workers ? fmt::format("{}", *flags.workers) : "not given"},
                              {"recipe", fmt::format("{}", fmt::join(recipes, ", then "))}};
  require_same_settings(communicator, settings);
}

int train_rank(Communicator communicator, const NnFlags& flags, SharedData& shared, JsonLines* json) {
  require_same_runs(communicator, flags);
  require_workers(flags, communicator.size());
  std::shared_ptr<const nn::DataSet> data;
  fail_together(communicator, failure_of([&] { data = shared.open(flags); }));
  if (communicator.rank() == 0) print(files_text(*data));
  std::vector<NnRun> runs;
  for (const NamedRecipe& recipe : flags.recipes) {
    if (flags.recipes.size() > 1 && flags.train.server.servers == 0) rehearse(communicator, flags, recipe);
  }
  int failed = 0;
  // With a parameter server workers may be lost while the others go on, so that ranks cannot vote on what failed.
  if (flags.recipes.size() > 1 && flags.train.server.servers == 0) {
    failed = train_all(communicator, flags, data, json, runs);
  } else {
    for (const NamedRecipe& recipe : flags.recipes) {
      runs.push_back(train_once(communicator, flags, data, recipe, json));
      if (runs.back().result.was_stopped) break;
    }
  }
  if (communicator.rank() == 0 && !runs.empty()) finish_runs(flags, runs);
  if (failed > 0) return 1;
  if (const std::string& error = runs.back().result.checkpoint_error; !error.empty()) {
    // Ranks that sum write together or not at all; with servers each has an error of its own.
    const bool tells = communicator.rank() == 0 || flags.train.server.servers > 0;
    if (tells) print_error(fmt::format("the last checkpoint was not written: {}", error));
    return 1;
  }
  return runs.back().result.was_stopped ? 130 : 0;
}

// A process that comes later. What it does is told by rank 0 of the job.
int train_newcomer(const NnFlags& flags) {
  SharedData shared;
  const std::shared_ptr<const nn::DataSet> data = shared.open(flags);
  const auto [communicator, place] = server::take_place(*flags.join);
  if (flags.launch.progress_thread) communicator.engine()->start_progress_thread();
  nn::TrainerOptions options = options_of(flags, flags.recipes.front());
  options.server.place = place;
  options.on_message = [](const std::string& message) { print(message + "\n"); };
  const nn::TrainResult result = nn::train(communicator, flags.network, data, options);
  return result.was_stopped ? 130 : 0;
}

constexpr const char* kExamples = R"(Examples:
  tulle train nn --model mlp --data fashion-mnist --recipe topk:1% --ranks 4 --epochs 1 --json epochs.jsonl
  tulle train nn --compare dense --compare 'topk:16/512|qsgd:4' --compare redsync:1% --epochs 3
  mpirun -n 4 tulle train nn --model resnet20 --data cifar10 --recipe spardl:1% --checkpoint run --resume
  tulle run -n 4 -- tulle train nn --model lstm --data wikitext --recipe redsync:0.1%
  tulle train nn --server 1 --workers 4 --backup 1 --recipe three_lc:s=1.75
  tulle run -n 5 -- tulle train nn --server 1 --recipe int8 --checkpoint run --resume
  tulle train nn --server 1 --recipe int8 --join node0:30500
)";

}  // namespace

void add_nn_command(CLI::App& parent, Action& action) {
  CLI::App* const command = parent.add_subcommand("nn", "Train a deep network, gradients compressed by a recipe");
  command->footer(model_list() + kExamples);
  const auto flags = std::make_shared<NnFlags>();
  add_nn_flags(*command, *flags);
  command->callback([flags, &action] {
    const Job job = this_job();
    finish(*flags, job);
    const auto json = flags->json_path && job.prints()
                          ? told_by("--json", [&] { return std::make_shared<JsonLines>(*flags->json_path); })
                          : nullptr;
    const std::string& checkpoint = flags->train.checkpoint.path;
    if (!checkpoint.empty()) told_by("--checkpoint", [&] { require_writable(checkpoint + ".lock"); });
    if (flags->trace_path) told_by("--trace", [&] { require_writable(*flags->trace_path); });
    action = [flags, json] {
      catch_interrupts();
      if (flags->join) return guarded([&] { return train_newcomer(*flags); });
      SharedData shared;
      return launch_ranks(flags->launch, [&](Communicator communicator) {
        return train_rank(std::move(communicator), *flags, shared, json.get());
      });
    };
  });
}

}  // namespace tulle::cli
