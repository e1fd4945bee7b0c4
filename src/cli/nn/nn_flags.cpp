#include "cli/nn/nn_flags.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "cli/common/numbers.hpp"
#include "tulle/server/options.hpp"

namespace tulle::cli {
namespace {

NamedRecipe recipe_from(const std::string& text) { return {text, gradient::parse_recipe(text)}; }

bool on_or_off(const std::string& text) {
  if (text == "on") return true;
  if (text == "off") return false;
  throw Error(ErrorKind::bad_input, fmt::format("'{}' is not one of on, off", text));
}

nn::Buffers buffers_from(const std::string& text) {
  for (const nn::Buffers each : {nn::Buffers::rank0, nn::Buffers::average}) {
    if (nn::to_string(each) == text) return each;
  }
  throw Error(ErrorKind::bad_input, fmt::format("'{}' is not one of rank0, average", text));
}

struct Address {
  std::string host;
  int port = 0;
};

// HOST:PORT, with brackets around an IPv6 address, or PORT alone.
Address address_from(const std::string& flag, const std::string& text, int least_port) {
  const std::size_t colon = text.rfind(':');
  std::string host = colon == std::string::npos ? "" : text.substr(0, colon);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  const std::string port = colon == std::string::npos ? text : text.substr(colon + 1);
  return {host, parse_int(flag, port, least_port, 65535)};
}

std::string model_names() {
  std::string names;
  for (const nn::ModelRow& row : nn::models()) names += (names.empty() ? "" : "|") + std::string(row.name);
  return names;
}

void require_model(const std::string& name) {
  for (const nn::ModelRow& row : nn::models()) {
    if (row.name == name) return;
  }
  throw Error(ErrorKind::bad_input, fmt::format("'{}' is not one of {}", name, model_names()));
}

void add_network_flags(CLI::App& command, NnFlags& flags) {
  add(command, "--model", model_names(), "what is trained; the list is below (mlp)", [&](const std::string& text) {
    require_model(text);
    flags.network.model = text;
  });
  add(command, "--data", "NAME|PATH",
      "fashion-mnist, mnist, cifar10, wikitext, atis, a directory with their files, a table (.tsv: label last), or a "
      "file of text (fashion-mnist)",
      [&](const std::string& text) { flags.data.name = text; });
  add(command, "--test", "FILE", "text or table to measure on, in place of the last tenth",
      [&](const std::string& text) { flags.data.test_path = text; });
  add_list(command, "--hidden", "N,...",
           "sizes of mlp's hidden layers (512,512), or of lstm (200), tagger and transformer (128)",
           [&](const auto& texts) {
             flags.network.hidden.clear();
             for (const std::string& text : texts)
               flags.network.hidden.push_back(parse_int("--hidden", text, 1, 65536));
           });
  add_int(command, "--sequence", "symbols of a sample of text (35)", 1, 4096,
          [&](int number) { flags.sequence = number; });
  add(command, "--dropout", "SHARE", "of lstm and tagger (0)",
      [&](const std::string& text) { flags.network.dropout = parse_share(text); });
  add(command, "--augment", "on|off", "crop and flip pictures (on for resnet and vgg, else off)",
      [&](const std::string& text) {
        flags.network.augmentation = on_or_off(text) ? nn::Augmentation{.pad = 4, .flip = true} : nn::Augmentation{};
      });
  add(command, "--samples", "N", "train on the first N pictures, symbols or sentences (all)",
      [&](const std::string& text) { flags.data.samples = parse_count(text); });
  add(command, "--test-samples", "N", "measure on the first N (all)",
      [&](const std::string& text) { flags.data.test_samples = parse_count(text); });
}

void add_recipe_flags(CLI::App& command, NnFlags& flags) {
  add(command, "--recipe", "RECIPE",
      "what is done to gradients: dense, topk:1%, topk:16/512|qsgd:4, redsync:1% ... (dense)",
      [&](const std::string& text) { flags.recipe = recipe_from(text); });
  command
      .add_option_function<std::vector<std::string>>(
          "--compare",
          [&](const std::vector<std::string>& texts) {
            for (const std::string& text : texts) {
              told_by("--compare", [&] { flags.compared.push_back(recipe_from(text)); });
            }
          },
          "train the same network with this recipe too, and print a table; may be given several times")
      ->type_name("RECIPE");
  add(command, "--overlap", "on|off", "exchange gradients while back-propagation goes on (on)",
      [&](const std::string& text) { flags.train.overlap = on_or_off(text); });
  add(command, "--progress-thread", "on|off", "a thread for messages while the rank computes (on under a launcher)",
      [&](const std::string& text) { flags.progress_thread = on_or_off(text); });
  add(command, "--batch-norm", "rank0|average", "whose running means are measured with (rank0)",
      [&](const std::string& text) {
        flags.train.buffers = buffers_from(text);
        flags.averages_buffers = flags.train.buffers == nn::Buffers::average;
      });
  command.add_flag("!--no-reproducible", flags.train.synchronizer.reproducible,
                   "let sums be chosen by measured time: faster, but no run repeats another bit for bit");
}

void add_server_flags(CLI::App& command, NnFlags& flags) {
  nn::ServerUse& server = flags.train.server;
  add_int(command, "--server", "a parameter server in place of sums: the first N ranks hold the weights", 1, 1024,
          [&](int number) { server.servers = number; });
  add_int(command, "--workers", "ranks that compute with --server (4, or all that a launcher started beside servers)",
          1, 1 << 20, [&](int number) { flags.workers = number; });
  add_int(command, "--backup", "workers that a step does not wait for; what they push too late is dropped (0)", 0,
          1 << 20, [&](int number) { server.backup = number; });
  add_real(command, "--grace", "S", "how long a step waits for backup workers, once the others are in (0)",
           server.grace_seconds);
  add(command, "--staleness", "N", "versions that the model of a gradient may be old (0: steps are synchronous)",
      [&](const std::string& text) { server.staleness = parse_count(text); });
  command.add_flag("--token-weights", server.weighs_pushes,
                   "gradients count by the predictions (words, labels, pictures) that they are of, and not equally");
  add(command, "--door", "[HOST:]PORT",
      "where rank 0 lets in processes that take the places of workers that were lost (0: a free port, which it prints)",
      [&](const std::string& text) {
        const Address address = address_from("--door", text, 0);
        server.door = DoorOptions{.host = address.host, .port = static_cast<std::uint16_t>(address.port)};
      });
  add(command, "--join", "HOST:PORT",
      "of a job's --door: take the place of a worker that was lost, with otherwise the same flags",
      [&](const std::string& text) {
        const Address address = address_from("--join", text, 1);
        if (address.host.empty()) throw Error(ErrorKind::bad_input, fmt::format("'{}' has no host", text));
        flags.join = JoinOptions{.host = address.host, .port = static_cast<std::uint16_t>(address.port)};
      });
  add(command, "--pull", "RECIPE", "how changes of the model travel from servers to workers (as --recipe)",
      [&](const std::string& text) { flags.pull = recipe_from(text); });
}

void add_optimizer_flags(CLI::App& command, NnFlags& flags) {
  nn::TrainerOptions& train = flags.train;
  add(command, "--optimizer", "sgd|adamw", "how updates change weights (sgd; transformer, diloco, sparseloco: adamw)",
      [&](const std::string& text) {
        if (text != "sgd" && text != "adamw") {
          throw Error(ErrorKind::bad_input, fmt::format("'{}' is not one of sgd, adamw", text));
        }
        flags.optimizer = text;
      });
  add(command, "--rate", "X",
      "of one rank (0.05; resnet, vgg 0.1; lstm, tagger 0.5; times 1 - momentum, twice that where a recipe masks it; "
      "adamw 0.001, with local steps 0.002)",
      [&](const std::string& text) { flags.rate = parse_real(text); });
  command.add_flag("--no-rate-scaling", flags.keeps_rate, "do not multiply the rate by the number of ranks");
  add(command, "--momentum", "X", "of sgd; recipes with momentum of their own use that (0; resnet, vgg 0.9)",
      [&](const std::string& text) { flags.momentum = parse_real(text); });
  command.add_flag("--nesterov", train.optimizer.nesterov, "Nesterov's form of it");
  add_real(command, "--weight-decay", "X", "(0)", train.optimizer.weight_decay);
  add(command, "--clip", "X",
      "bound on the norm of the gradient; gradients then do not overlap (0: none; lstm, tagger 1)",
      [&](const std::string& text) { flags.clip_norm = parse_real(text); });
  add(command, "--schedule", "constant|step|cosine", "how the rate changes; step: a tenth at 50 % and 75 % (constant)",
      [&](const std::string& text) { train.schedule.schedule = nn::schedule_from(text); });
  add_real(command, "--warm-up", "EPOCHS", "over which the rate grows (0)", train.schedule.warm_up_epochs);
}

void add_run_flags(CLI::App& command, NnFlags& flags) {
  nn::TrainerOptions& train = flags.train;
  add_int(command, "--epochs", "passes over the data (1)", 1, 1000000, [&](int number) { train.epochs = number; });
  add(command, "--steps", "N", "at most so many steps of an epoch (all)",
      [&](const std::string& text) { train.steps_of_epoch = parse_count(text); });
  add_int(command, "--batch", "samples of a rank in a step (64)", 1, 1 << 20,
          [&](int number) { train.batch = static_cast<std::uint32_t>(number); });
  add_int(command, "--patience", "stop after so many epochs without a better held-out loss (never)", 1, 1000000,
          [&](int number) { train.patience = number; });
  add(command, "--seed", "N", "of weights, order of samples and everything random (1)",
      [&](const std::string& text) { train.seed = parse_count(text); });
  add(command, "--checkpoint", "FILE",
      "save the run in FILE.RANK-of-RANKS, every --checkpoint-seconds and when interrupted; with --server in "
      "FILE.server.N-of-SERVERS and FILE.worker.N-of-WORKERS, every --checkpoint-steps",
      [&](const std::string& text) { train.checkpoint.path = text; });
  add(command, "--checkpoint-seconds", "S", "between two (60)",
      [&](const std::string& text) { flags.checkpoint_seconds = parse_real(text); });
  add(command, "--checkpoint-steps", "N", "steps between two with --server (an epoch)",
      [&](const std::string& text) { train.checkpoint.steps = parse_count(text); });
  command.add_flag("--resume", train.checkpoint.resume, "go on from the checkpoint, where there is one");
  add(command, "--json", "FILE", "append one JSON object per epoch",
      [&](const std::string& text) { flags.json_path = text; });
  add(command, "--step-json", "FILE", "append one JSON object per exchange, with what each parameter cost",
      [&](const std::string& text) { train.step_log.lines = text; });
  add(command, "--step-trace", "FILE", "write a trace of the first 100 exchanges, for chrome://tracing and Perfetto",
      [&](const std::string& text) { train.step_log.trace = text; });
  add(command, "--trace", "FILE", "write what a step of rank 0 computes, for 'tulle simulate --trace'",
      [&](const std::string& text) { flags.trace_path = text; });
  command.add_flag("--report", flags.shows_report, "print what the exchanges cost, stage by stage");
}

// SGD at the usual rate of one rank gets nowhere in the steps that a rank takes alone: 6 points of accuracy less after
// an epoch on Fashion-MNIST. With fewer local steps the sum of all ranks' gradients is near enough.
constexpr std::uint64_t kManyLocalSteps = 10;

// With s above 1 what travels is larger than what was meant, in both directions: plain SGD at the usual rate diverges
// at 1.75, and the paper's momentum evens it out.
constexpr double kMomentumOf3lc = 0.9;

// Momentum that is masked (DGC, RedSync) begins anew in every value that is sent, so that the values that are sent most
// are hardly helped by it. Of 1, 2, 3, 4 and 6 times the rate of momentum that is not masked, 2 and 3 gave what dense
// gives after 300 steps on Fashion-MNIST, and 1 was 1.7 points behind.
constexpr double kRateOfMasked = 2;

bool is_recurrent(const std::string& model) { return model == "lstm" || model == "tagger"; }

// What is usual for a network, where the flags say nothing.
void set_defaults(NnFlags& flags) {
  nn::TrainerOptions& train = flags.train;
  const std::string& model = flags.network.model;
  const bool is_adamw = flags.optimizer.value_or(model == "transformer" ? "adamw" : "sgd") == "adamw";
  train.optimizer.kind = is_adamw ? nn::OptimizerKind::adamw : nn::OptimizerKind::sgd;
  train.optimizer.momentum = flags.momentum.value_or(!is_adamw && has_batch_norm(model) ? 0.9 : 0);
  train.clip_norm = flags.clip_norm.value_or(is_recurrent(model) ? 1 : 0);
  train.scale_rate = !is_adamw && !flags.keeps_rate;  // AdamW's steps do not grow with the gradient
  train.checkpoint.seconds = flags.checkpoint_seconds.value_or(train.checkpoint.seconds);
  if (is_adamw && flags.momentum) reject("--momentum", "is for --optimizer sgd");
  if (train.optimizer.momentum >= 1) reject("--momentum", "is not below 1");
  if (train.optimizer.nesterov && train.optimizer.momentum == 0) reject("--nesterov", "needs --momentum");
}

void set_recipes(NnFlags& flags) {
  if (flags.recipe) flags.recipes.push_back(*flags.recipe);
  flags.recipes.insert(flags.recipes.end(), flags.compared.begin(), flags.compared.end());
  if (flags.recipes.empty()) flags.recipes.push_back(recipe_from("dense"));
  if (flags.recipes.size() > 1 && !flags.train.checkpoint.path.empty()) {
    reject("--checkpoint", "is for one recipe: leave --compare out");
  }
  if (flags.recipes.size() > 1 && flags.trace_path) reject("--trace", "is of one recipe: leave --compare out");
}

// Flags of a parameter server without one would do nothing.
void require_server(const NnFlags& flags) {
  const nn::ServerUse& server = flags.train.server;
  if (server.servers > 0) return;
  const auto require = [](bool is_unset, const char* flag) {
    if (!is_unset) reject(flag, "is for a parameter server: --server 1");
  };
  require(!flags.workers, "--workers");
  require(server.backup == 0, "--backup");
  require(server.grace_seconds == 0, "--grace");
  require(server.staleness == 0, "--staleness");
  require(!flags.pull, "--pull");
  require(!server.weighs_pushes, "--token-weights");
  require(!server.door, "--door");
  require(!flags.join, "--join");
  require(flags.train.checkpoint.steps == 0, "--checkpoint-steps");
}

// A newcomer is one process, and comes to one training.
void finish_newcomers(NnFlags& flags, const Job& job) {
  const char* const flag = flags.join ? "--join" : "--door";
  if (!flags.join && !flags.train.server.door) return;
  if (flags.recipes.size() > 1) reject(flag, "is for one recipe: leave --compare out");
  if (flags.join && (job.is_under_mpirun || job.has_rendezvous)) {
    reject(flag, "this process was started by a launcher, and has a rank already");
  }
  if (flags.join && flags.json_path) reject("--json", "rank 0 of the job writes it: leave it out with --join");
  if (!flags.join && !job.has_rendezvous)
    reject(flag, "is for processes on TCP, which find each other by TULLE_ADDRESS");
  if (flags.join) flags.join->deadline_seconds = flags.train.server.deadline_seconds;
}

// What does not go with a parameter server, in the words of the flags.
void finish_server(NnFlags& flags, const Job& job) {
  nn::ServerUse& server = flags.train.server;
  if (server.servers == 0) return;
  const bool is_launched = job.is_under_mpirun || job.has_rendezvous;
  if (flags.launch_flags.ranks) reject("--ranks", "with --server: --workers says how many ranks compute");
  if (flags.train.optimizer.kind == nn::OptimizerKind::adamw) {
    reject("--optimizer", "with --server the servers step, by SGD: --optimizer sgd");
  }
  if (flags.train.optimizer.nesterov) reject("--nesterov", "the servers' SGD has no such form: leave it out");
  if (flags.trace_path) reject("--trace", "is about sums among all ranks: leave --server out");
  if (!flags.train.step_log.lines.empty()) reject("--step-json", "is about sums among all ranks: leave --server out");
  if (!flags.train.step_log.trace.empty()) reject("--step-trace", "is about sums among all ranks: leave --server out");
  if (flags.train.patience > 0)
    reject("--patience", "workers of a parameter server do not stop together: leave it out");
  if (flags.averages_buffers.value_or(false)) {
    reject("--batch-norm", "each worker of a parameter server measures with its own running means: leave it out");
  }
  const int workers = flags.workers.value_or(4);
  if ((flags.workers || !is_launched) && server.backup >= workers) {
    reject("--backup", fmt::format("{} of {} workers: a step needs at least one push", server.backup, workers));
  }
  if (server.grace_seconds > 0 && server.backup == 0) reject("--grace", "is for steps with --backup workers");
  flags.launch_flags.ranks = is_launched ? std::optional<int>() : server.servers + workers;
  if (flags.pull) server.pull = flags.pull->recipe;
  if (flags.launch_flags.deadline_seconds) server.deadline_seconds = *flags.launch_flags.deadline_seconds;
  finish_newcomers(flags, job);
  const int ranks = server.servers + server.backup + 1;  // the fewest that would do
  for (const NamedRecipe& recipe : flags.recipes) {
    told_by("--recipe",
            [&] { server::validate({.servers = server.servers, .push = recipe.recipe, .pull = server.pull}, ranks); });
  }
}

// What the optimizer's flags say where recipes decide: an option that each of them overrides would do nothing.
void require_useful_optimizer(const NnFlags& flags) {
  const auto all_have = [&](auto has) { return std::ranges::all_of(flags.recipes, has); };
  const std::string& first = flags.recipes.front().text;
  const auto has_momentum = [](const NamedRecipe& recipe) { return recipe.recipe.momentum > 0; };
  if (flags.train.optimizer.nesterov && all_have(has_momentum)) {
    reject("--nesterov", fmt::format("{0} has momentum of its own, in place of the optimizer's: --recipe "
                                     "'{0}|nesterov:on'",
                                     first));
  }
  if (flags.momentum && all_have(has_momentum)) {
    reject("--momentum", fmt::format("{0} has momentum of its own, in place of the optimizer's: --recipe "
                                     "'{0}|momentum:{1}'",
                                     first, *flags.momentum));
  }
  for (const NamedRecipe& recipe : flags.recipes) {
    if (recipe.recipe.momentum == 0 || optimizer_for(flags, recipe.recipe).kind == nn::OptimizerKind::sgd) continue;
    reject("--optimizer", fmt::format("{0} has SGD's momentum inside, on which adamw{1} would work a second time: "
                                      "--optimizer sgd, or --recipe '{0}|momentum:0|masking:off'",
                                      recipe.text, flags.optimizer ? "" : ", usual for " + flags.network.model + ","));
  }
  const auto has_decay = [](const NamedRecipe& recipe) { return recipe.recipe.weight_decay > 0; };
  if (flags.train.optimizer.weight_decay > 0 && all_have(has_decay)) {
    reject("--weight-decay", fmt::format("{} has weight decay of its own, in place of the optimizer's", first));
  }
  const auto keeps_rate = [&](const NamedRecipe& recipe) {
    return optimizer_for(flags, recipe.recipe).kind == nn::OptimizerKind::adamw || recipe.recipe.every > 1 ||
           recipe.recipe.exchange == gradient::Exchange::none || recipe.recipe.aggregate == gradient::Aggregate::sum;
  };
  if (flags.keeps_rate && flags.train.server.servers == 0 && all_have(keeps_rate)) {
    reject("--no-rate-scaling",
           "rates are not scaled with AdamW, with local steps, and with recipes that send nothing "
           "or sums: leave it out");
  }
}

// Without a checkpoint there is none to write, and with a parameter server steps say when.
void require_useful_checkpoint(const NnFlags& flags) {
  const nn::CheckpointOptions& checkpoint = flags.train.checkpoint;
  const bool has_servers = flags.train.server.servers > 0;
  if (flags.checkpoint_seconds && has_servers) {
    reject("--checkpoint-seconds", "servers save after steps: --checkpoint-steps");
  }
  if (flags.checkpoint_seconds && checkpoint.path.empty()) reject("--checkpoint-seconds", "needs --checkpoint");
  if (checkpoint.steps > 0 && checkpoint.path.empty()) reject("--checkpoint-steps", "needs --checkpoint");
  if (has_servers && !flags.train.synchronizer.reproducible) {
    reject("--no-reproducible", "is about sums among all ranks: leave --server out");
  }
}

// Flags that would do nothing.
void require_useful(NnFlags& flags) {
  const std::string& model = flags.network.model;
  const bool takes_text = model == "lstm" || model == "transformer";
  if (flags.sequence && !takes_text)
    reject("--sequence", fmt::format("{} takes no text: lstm and transformer do", model));
  if (flags.sequence) flags.network.sequence = static_cast<std::uint32_t>(*flags.sequence);
  if (flags.network.augmentation && (takes_text || model == "tagger")) {
    reject("--augment", fmt::format("{} takes no pictures", model));
  }
  if (flags.averages_buffers && !has_batch_norm(model)) {
    reject("--batch-norm", fmt::format("{} has no BatchNorm: resnet and vgg do", model));
  }
  require_useful_optimizer(flags);
  require_useful_checkpoint(flags);
}

}  // namespace

bool has_batch_norm(const std::string& model) { return model.starts_with("resnet") || model.starts_with("vgg"); }

nn::OptimizerOptions optimizer_for(const NnFlags& flags, const gradient::Recipe& recipe) {
  nn::OptimizerOptions optimizer = flags.train.optimizer;
  const bool says_nothing = !flags.optimizer && !flags.momentum && !flags.rate && !optimizer.nesterov;
  if (!says_nothing) return optimizer;
  if (recipe.every >= kManyLocalSteps) {
    optimizer.kind = nn::OptimizerKind::adamw;
    optimizer.momentum = 0;
  }
  const bool overshoots = recipe.values.coding == ValueCoding::three_lc && recipe.values.sparsity > 1;
  if (flags.train.server.servers > 0 && overshoots) optimizer.momentum = kMomentumOf3lc;
  return optimizer;
}

double rate_for(const NnFlags& flags, const gradient::Recipe& recipe) {
  if (flags.rate) return *flags.rate;
  const bool is_local = recipe.every >= kManyLocalSteps;
  if (optimizer_for(flags, recipe).kind == nn::OptimizerKind::adamw) return is_local ? 0.002 : 0.001;
  const std::string& model = flags.network.model;
  const double usual = is_recurrent(model) ? 0.5 : has_batch_norm(model) ? 0.1 : 0.05;
  if (recipe.momentum > 0) return usual * (1 - recipe.momentum) * (recipe.masking ? kRateOfMasked : 1);
  return usual * (1 - optimizer_for(flags, recipe).momentum);
}

std::string model_list() {
  std::string text = "Models:\n";
  for (const nn::ModelRow& row : nn::models()) {
    text += fmt::format("  {:<12}{:<19}{}\n", row.name, row.data, row.summary);
  }
  return text;
}

void add_nn_flags(CLI::App& command, NnFlags& flags) {
  add_network_flags(command, flags);
  add_recipe_flags(command, flags);
  add_server_flags(command, flags);
  add_optimizer_flags(command, flags);
  add_run_flags(command, flags);
  add_launch_flags(command, flags.launch_flags);
}

void finish(NnFlags& flags, const Job& job) {
  set_defaults(flags);
  set_recipes(flags);
  require_server(flags);
  finish_server(flags, job);
  require_useful(flags);
  flags.data.unit = nn::unit_of(flags.network.model);
  flags.launch = resolve_launch(flags.launch_flags, job);
  if (flags.launch.transport == TransportChoice::sim) {
    reject("--transport", "networks are not trained in simulation: threads, or mpi and tcp under a launcher");
  }
  flags.launch.progress_thread =
      flags.progress_thread.value_or(flags.launch.transport != TransportChoice::threads || flags.join);
  if (flags.train.checkpoint.resume && flags.train.checkpoint.path.empty()) reject("--resume", "needs --checkpoint");
}

}  // namespace tulle::cli
