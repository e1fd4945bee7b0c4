// tulle predict: labels of rows by a model, and how many of them are right.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/commands.hpp"
#include "cli/common/data_flags.hpp"
#include "cli/common/flags.hpp"
#include "cli/common/print.hpp"
#include "tulle/comm/threads.hpp"
#include "tulle/linear/train.hpp"

namespace tulle::cli {
namespace {

struct PredictFlags {
  std::string model_path, data_path;
  std::optional<std::string> out_path;
  bool probabilities = false, json = false;
  linear::DataOptions data;
};

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, CloseFile>;

[[noreturn]] void refuse_to_write(const std::string& path) {
  throw Error(ErrorKind::system, fmt::format("{}: cannot be written: {}", path, std::strerror(errno)));
}

File create(const std::string& path) {
  File file(std::fopen(path.c_str(), "w"));
  if (file == nullptr) refuse_to_write(path);
  return file;
}

void write_predictions(const PredictFlags& flags, linear::Dataset& data, const linear::LinearModel& model) {
  if (flags.probabilities) (void)model.probabilities({});  // throws where there are none, before the file is touched
  const File file = create(*flags.out_path);
  const auto write = [&](const std::string& text) {
    if (std::fwrite(text.data(), 1, text.size(), file.get()) != text.size()) refuse_to_write(*flags.out_path);
  };
  if (flags.probabilities) write(fmt::format("label {}\n", fmt::join(model.classes, " ")));
  data.for_each_block([&](const linear::Rows& rows) {
    for (std::size_t row = 0; row < rows.size(); ++row) {
      write(fmt::format("{}", model.predict(rows[row])));
      if (flags.probabilities) write(fmt::format(" {:.6g}", fmt::join(model.probabilities(rows[row]), " ")));
      write("\n");
    }
  });
  if (std::fflush(file.get()) != 0) refuse_to_write(*flags.out_path);
}

std::string summary(const linear::LinearModel& model, const linear::Evaluation& evaluation, bool as_json) {
  if (as_json) {
    nlohmann::json json = {{"rows", evaluation.rows}, {"loss", evaluation.loss}};
    if (model.is_classifier()) json["accuracy"] = evaluation.accuracy;
    if (evaluation.auc) json["auc"] = *evaluation.auc;
    return json.dump() + "\n";
  }
  std::string text = fmt::format("{} rows, {} loss {:.5f}", evaluation.rows, to_string(model.loss), evaluation.loss);
  if (model.is_classifier()) text += fmt::format(", accuracy {:.4f}", evaluation.accuracy);
  if (evaluation.auc) text += fmt::format(", AUC {:.5f}", *evaluation.auc);
  return text + "\n";
}

int predict(const PredictFlags& flags) {
  const linear::LinearModel model = linear::load_model(*open_reader(flags.model_path));
  linear::Dataset data = open_data(flags.data_path, TransportChoice::threads, flags.data);
  if (flags.out_path) write_predictions(flags, data, model);
  run_threads(1, [&](Communicator& communicator) {
    print(summary(model, linear::evaluate(communicator, data, model), flags.json));
  });
  return 0;
}

constexpr const char* kExamples = R"(Examples:
  tulle predict --model url.model --data url.t.tcsr
  tulle predict --model a9a.model --data a9a.t.xz --out labels.txt --probabilities
)";

}  // namespace

void add_predict_command(CLI::App& parent, Action& action) {
  CLI::App* const command = parent.add_subcommand("predict", "Label rows by a model of 'tulle train linear'");
  command->footer(kExamples);
  const auto flags = std::make_shared<PredictFlags>();
  command->add_option("--model", flags->model_path, "of 'tulle train linear --out'")->required()->type_name("FILE");
  command->add_option("--data", flags->data_path, "rows; their labels are used to measure alone")
      ->required()
      ->type_name("FILE");
  add_data_flags(*command, flags->data);
  add(*command, "--out", "FILE", "write a line for each row: its label",
      [flags](const std::string& text) { flags->out_path = text; });
  command->add_flag("--probabilities", flags->probabilities, "… and the probability of each class");
  command->add_flag("--json", flags->json, "print the measures as JSON");
  command->callback([flags, &action] {
    if (flags->probabilities && !flags->out_path) reject("--probabilities", "needs --out");
    action = [flags] { return guarded([&] { return predict(*flags); }); };
  });
}

}  // namespace tulle::cli
