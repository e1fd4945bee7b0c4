#include "cli/train/train_flags.hpp"

#include <fmt/format.h>

#include <charconv>

#include "cli/common/data_flags.hpp"
#include "cli/common/numbers.hpp"

namespace tulle::cli {
namespace {

constexpr const char* kModels = "logistic|hinge|squared_hinge|least_squares|lasso|elastic_net";

// A model's name is a loss, and for lasso and elastic net which penalties it has to have.
void set_model(TrainFlags& flags) {
  linear::TrainOptions& train = flags.train;
  const std::string& name = flags.model_name;
  const bool is_squares = name == "least_squares" || name == "lasso" || name == "elastic_net";
  const bool is_loss = name == "logistic" || name == "hinge" || name == "squared_hinge";
  if (!is_squares && !is_loss) reject("--model", fmt::format("'{}' is not one of {}", name, kModels));
  train.loss = is_squares ? linear::Loss::squares : linear::loss_from(name);
  if (is_squares && name != "least_squares" && train.penalty.l1 == 0) reject("--l1", name + " needs one above 0");
  if (name == "elastic_net" && train.penalty.l2 == 0) reject("--l2", name + " needs one above 0");
  if (name == "lasso" && train.penalty.l2 != 0) reject("--l2", "lasso has none; elastic_net has both");
}

void reject_given(const CLI::App& command, std::initializer_list<const char*> names, const char* reason) {
  for (const char* const name : names) {
    if (command.count(name) > 0) reject(name, reason);
  }
}

// Flags that describe a network are for simulation, which has one in any case.
void set_network(TrainFlags& flags, const CLI::App& command) {
  if (flags.launch.transport == TransportChoice::sim) {
    told_by("--network", [&] {
      flags.launch.network = network_from(flags.network);
      flags.launch.network->validate(flags.launch.ranks);
    });
    return;
  }
  reject_given(command, {"--network", "--ranks-per-node", "--fat-tree", "--straggler", "--slow-link"},
               "is for --transport sim");
}

linear::Solver solver_from(const std::string& name) {
  if (name == "sgd") return linear::Solver::sgd;
  if (name == "scd") return linear::Solver::scd;
  throw Error(ErrorKind::bad_input, fmt::format("'{}' is not one of sgd, scd", name));
}

void add_class_weight(const std::string& text, linear::TrainOptions& train) {
  const std::size_t colon = text.find(':');
  float label = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + std::min(colon, text.size()), label);
  if (colon == std::string::npos || error != std::errc() || end != text.data() + colon) {
    throw Error(ErrorKind::bad_input, fmt::format("'{}' is not LABEL:WEIGHT such as -1:0.5", text));
  }
  train.class_weights[label] = parse_real(text.substr(colon + 1));
}

void add_model_flags(CLI::App& command, TrainFlags& flags) {
  linear::TrainOptions& train = flags.train;
  add(command, "--model", kModels, "what is trained; more than two labels: one against the rest (logistic)",
      [&](const std::string& text) { flags.model_name = text; });
  add_real(command, "--l1", "X", "adds X times the sum of magnitudes (0)", train.penalty.l1);
  add_real(command, "--l2", "X", "adds X/2 times the sum of squares (0)", train.penalty.l2);
  command.add_flag("!--no-intercept", train.intercept, "leave the constant term out");
  command.add_flag("--balanced", train.balanced, "weigh classes by the inverse of their share");
  add_list(command, "--class-weight", "LABEL:X", "weigh the rows of a label", [&](const auto& texts) {
    for (const std::string& text : texts) add_class_weight(text, train);
  });
}

void add_sgd_flags(CLI::App& command, TrainFlags& flags) {
  linear::TrainOptions& train = flags.train;
  add_int(command, "--batch", "at most so many rows of each rank in a step (0: 1/100 of its rows, at most 1000)", 0,
          1 << 24, [&](int number) { train.batch_rows = static_cast<std::uint32_t>(number); });
  add_real(command, "--rate", "X", "learning rate at the beginning (0: by the model, 0.05 to 0.2)", train.rate);
  add_real(command, "--decay", "X", "of schedules step and inverse (0.1)", train.decay);
  add(command, "--schedule", "constant|step|inverse|inverse_square_root|bold_driver|adagrad",
      "how the rate changes (adagrad)", [&](const std::string& text) { train.schedule = linear::schedule_from(text); });
  add_list(command, "--aggregation", "auto|sparse|dense|ROW",
           "how gradients are summed; several train one after the other, and a table compares them (auto)",
           [&](const auto& texts) { flags.aggregations = texts; });
  add_int(command, "--staleness", "steps that may begin before a sum is applied (0)", 0, 1000,
          [&](int number) { train.staleness = number; });
  command.add_flag("!--no-shuffle", train.shuffle, "take rows as they lie in the file");
}

void add_run_flags(CLI::App& command, TrainFlags& flags) {
  linear::TrainOptions& train = flags.train;
  add_int(command, "--epochs", "passes over the data (10)", 1, 1000000, [&](int number) { train.epochs = number; });
  add_real(command, "--tolerance", "SHARE", "stop when the loss falls by less in an epoch (0: never)", train.tolerance);
  add_int(command, "--patience", "… in so many epochs (2)", 1, 1000, [&](int number) { train.patience = number; });
  add(command, "--seed", "N", "of the order of rows (1)",
      [&](const std::string& text) { train.seed = parse_count(text); });
  add_int(command, "--threads", "of each rank; 0: one a processor (1)", 0, 1024,
          [&](int number) { train.threads = number; });
  add(command, "--checkpoint", "FILE", "save the run there, every --checkpoint-seconds and when interrupted",
      [&](const std::string& text) { train.checkpoint.path = text; });
  add_real(command, "--checkpoint-seconds", "S", "between two (60)", train.checkpoint.seconds);
  command.add_flag("--resume", train.checkpoint.resume, "go on from the checkpoint, where there is one");
  add(command, "--out", "FILE", "write the model", [&](const std::string& text) { flags.model_path = text; });
  add(command, "--json", "FILE", "append one JSON object per epoch",
      [&](const std::string& text) { flags.json_path = text; });
}

// What a solver would ignore.
void reject_without_effect(const TrainFlags& flags, const CLI::App& command) {
  const linear::TrainOptions& train = flags.train;
  if (train.solver == linear::Solver::scd) {
    reject_given(command, {"--batch", "--rate", "--decay", "--schedule", "--no-shuffle"}, "is for --solver sgd");
  } else {
    reject_given(command, {"--coordinates", "--damping"}, "is for --solver scd");
  }
  const bool has_decay = train.schedule == linear::Schedule::step || train.schedule == linear::Schedule::inverse ||
                         train.schedule == linear::Schedule::inverse_square_root;
  if (!has_decay) reject_given(command, {"--decay"}, "is for --schedule step, inverse and inverse_square_root");
  if (train.tolerance == 0) reject_given(command, {"--patience"}, "needs a --tolerance");
  if (train.checkpoint.path.empty()) reject_given(command, {"--checkpoint-seconds", "--resume"}, "needs --checkpoint");
}

}  // namespace

void add_train_flags(CLI::App& command, TrainFlags& flags) {
  add(command, "--data", "FILE", "rows to train on: text, .gz, .xz, .zst, or of 'tulle convert'",
      [&](const std::string& text) { flags.data_path = text; })
      ->required();
  add(command, "--test", "FILE", "rows to measure on", [&](const std::string& text) { flags.test_path = text; });
  add(command, "--hold-out", "SHARE", "of the rows, to measure on instead (0)",
      [&](const std::string& text) { flags.held_out_share = parse_share(text); });
  add_data_flags(command, flags.data);
  add_model_flags(command, flags);
  add(command, "--solver", "sgd|scd", "gradient or coordinate descent (sgd)",
      [&](const std::string& text) { flags.train.solver = solver_from(text); });
  add_sgd_flags(command, flags);
  add_int(command, "--coordinates", "scd: updates of each rank in an iteration (0: 1/32 of its own, at most 100)", 0,
          1 << 24, [&](int number) { flags.train.coordinates = static_cast<std::uint32_t>(number); });
  add_real(command, "--damping", "X",
           "scd: how many ranks are taken to move coordinates of a row at a time (0: by the data)",
           flags.train.damping);
  add_run_flags(command, flags);
  add_launch_flags(command, flags.launch_flags);
  add_network_flags(command, flags.network);
}

void finish(TrainFlags& flags, const CLI::App& command, const Job& job) {
  set_model(flags);
  flags.launch = resolve_launch(flags.launch_flags, job);
  set_network(flags, command);
  reject_without_effect(flags, command);
  if (flags.test_path && flags.held_out_share > 0) reject("--hold-out", "and --test exclude each other");
  if (flags.aggregations.size() > 1 && !flags.train.checkpoint.path.empty()) {
    reject("--aggregation", "takes one with --checkpoint");
  }
}

}  // namespace tulle::cli
