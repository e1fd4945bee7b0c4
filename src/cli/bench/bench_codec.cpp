// tulle bench codec: how fast each coding is beside a memcpy of the same values, and how near it comes to the entropy.

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/json_lines.hpp"
#include "base/progress.hpp"
#include "cli/commands.hpp"
#include "cli/common/flags.hpp"
#include "cli/common/numbers.hpp"
#include "cli/common/print.hpp"
#include "cli/common/table.hpp"
#include "cli/common/value_file.hpp"
#include "measure/codec_comparison.hpp"
#include "measure/machine.hpp"
#include "measure/random_values.hpp"
#include "tulle/codec/registry.hpp"

namespace tulle::cli {
namespace {

struct CodecBenchFlags {
  std::uint64_t count = 14'700'000;
  std::vector<double> densities{0.001, 0.01};
  std::vector<measure::Distribution> distributions{measure::Distribution::gaussian, measure::Distribution::heavy};
  std::vector<ValueCodec> codecs;
  std::string input;  ///< a file of f32 instead of the distributions
  int repeats = 7;
  std::optional<std::string> json_path;
};

std::string table_of(const measure::CodecCase& bench) {
  std::vector<std::vector<std::string>> rows;
  for (const measure::CodecRow& row : bench.rows) {
    rows.push_back({row.name, std::string(row.direction), fmt::format("{:.3f}", row.bits),
                    row.limit > 0 ? fmt::format("{:.3f}", row.limit) : "-", format_seconds(row.seconds.median),
                    format_seconds(row.seconds.q1), format_seconds(row.seconds.q3),
                    fmt::format("{:.0f}", static_cast<double>(bench.items) / row.seconds.median * 1e-6),
                    fmt::format("{:.0f}", 100 / row.ratio), row.verified ? "OK" : "WRONG"});
  }
  Table table({{"codec", "", Align::left},
               {"direction", "", Align::left},
               {"bits", "an item"},
               {"entropy", "an item"},
               {"median"},
               {"q1"},
               {"q3"},
               {"speed", "M items/s"},
               {"of memcpy", "%"},
               {"check", "", Align::left}});
  table.fit(rows);
  std::string text = fmt::format("\n{}, {} items\n{}", bench.name, bench.items, table.header());
  for (const std::vector<std::string>& row : rows) text += table.row(row);
  return text;
}

void append_json(const measure::CodecCase& bench, JsonLines& json) {
  const measure::Machine machine = measure::this_machine();
  for (const measure::CodecRow& row : bench.rows) {
    nlohmann::ordered_json object{{"kind", "codec"},
                                  {"codec", row.name},
                                  {"case", bench.name},
                                  {"direction", row.direction},
                                  {"dimension", bench.items},
                                  {"bits_per_value", row.bits},
                                  {"seconds_median", row.seconds.median},
                                  {"seconds_q1", row.seconds.q1},
                                  {"seconds_q3", row.seconds.q3},
                                  {"reference_seconds", bench.rows.front().seconds.median},
                                  {"ratio", row.ratio},
                                  {"verified", row.verified},
                                  {"cpu", machine.cpu},
                                  {"compiler", machine.compiler},
                                  {"git_commit", machine.git_commit},
                                  {"timestamp", measure::utc_timestamp()}};
    if (bench.density) object["density"] = *bench.density;
    if (row.limit > 0) object["entropy_bits"] = row.limit;
    json.append(object.dump());
  }
}

Buffer values_of(measure::Distribution distribution, std::uint64_t count) {
  const std::vector<float> values = measure::random_values(count, distribution, 1);
  return Buffer::copy_of(std::as_bytes(std::span(values)));
}

// Measures case by case and shows each when it is there.
class CodecBench {
 public:
  CodecBench(const CodecBenchFlags& flags, JsonLines* json) : flags_(flags), json_(json) {}

  int run() {
    if (!flags_.input.empty()) {
      run_values(flags_.input, read_values(flags_.input, ValueType::f32));
      return is_verified_ ? 0 : 1;
    }
    for (const measure::Distribution distribution : flags_.distributions) {
      run_values(std::string(to_string(distribution)), values_of(distribution, flags_.count));
    }
    for (const double density : flags_.densities) {
      Progress progress("indices", static_cast<std::uint64_t>(flags_.repeats));
      show(measure::compare_index_codecs(density, flags_.count, flags_.repeats, &progress), progress);
    }
    return is_verified_ ? 0 : 1;
  }

 private:
  void run_values(const std::string& name, const Buffer& values) {
    Progress progress(name, static_cast<std::uint64_t>(flags_.repeats));
    show(measure::compare_value_codecs(name, values, flags_.codecs, flags_.repeats, &progress), progress);
  }

  void show(const measure::CodecCase& bench, Progress& progress) {
    progress.clear();
    print(table_of(bench));
    if (json_ != nullptr) append_json(bench, *json_);
    is_verified_ = is_verified_ && std::ranges::all_of(bench.rows, &measure::CodecRow::verified);
  }

  const CodecBenchFlags& flags_;
  JsonLines* json_;
  bool is_verified_ = true;
};

int run_bench(const CodecBenchFlags& flags, JsonLines* json) {
  const measure::Machine machine = measure::this_machine();
  print(fmt::format("# {}, one thread, {}; medians of {} rounds in which all take turns\n", machine.cpu,
                    machine.compiler, flags.repeats));
  return CodecBench(flags, json).run();
}

std::vector<ValueCodec> default_codecs() {
  std::vector<ValueCodec> codecs;
  for (const ValueCodecRow& row : value_codecs()) {
    if (row.coding == ValueCoding::qsgd || row.coding == ValueCoding::three_lc) continue;
    codecs.push_back({.coding = row.coding});
  }
  for (const char* text : {"qsgd:bits=2", "qsgd:bits=4", "qsgd:bits=4,norm=max", "qsgd:bits=8", "three_lc:s=1.00",
                           "three_lc:s=1.50", "three_lc:s=1.75", "three_lc:s=1.90", "three_lc:zero_runs=off"}) {
    codecs.push_back(parse_value_codec(text));
  }
  return codecs;
}

constexpr const char* kExamples = R"(Examples:
  tulle bench codec
  tulle bench codec --count 64M --values gaussian --codec qsgd:bits=4 --codec three_lc:s=1.75
  tulle bench codec --input gradients.f32 --codec three_lc --codec three_lc:s=1.75
)";

void add_flags(CLI::App& command, const std::shared_ptr<CodecBenchFlags>& flags) {
  add(command, "--count", "N", "values (14700000)",
      [flags](const std::string& text) { flags->count = std::max<std::uint64_t>(1, parse_count(text)); });
  add_list(command, "--values", "gaussian|heavy", "distributions of values (both)",
           [flags](const std::vector<std::string>& names) {
             flags->distributions.clear();
             for (const std::string& name : names) {
               flags->distributions.push_back(measure::distribution_from(name));
             }
           });
  add_list(command, "--density", "SHARE", "of uniform indices (0.001 0.01)",
           [flags](const std::vector<std::string>& texts) {
             flags->densities.clear();
             for (const std::string& text : texts) flags->densities.push_back(parse_share(text));
           });
  command
      .add_option_function<std::vector<std::string>>(
          "--codec",
          [flags](const std::vector<std::string>& texts) {
            flags->codecs.clear();
            for (const auto& text : texts)
              flags->codecs.push_back(told_by("--codec", [&] { return parse_value_codec(text); }));
          },
          "value codecs, see 'tulle list codecs'; may be given several times (all)")
      ->type_name("NAME[:OPTION=VALUE,...]");
  command.add_option("--input", flags->input, "a file of raw f32 to code instead of random values");
  add_int(command, "--repeats", "rounds that are timed (7)", 1, 10'000, [flags](int n) { flags->repeats = n; });
  add(command, "--json", "FILE", "append a line for each row",
      [flags](const std::string& text) { flags->json_path = text; });
}

}  // namespace

void add_bench_codec_command(CLI::App& parent, Action& action) {
  CLI::App* const command = parent.add_subcommand("codec", "Time codings beside memcpy, after checking what they give");
  command->footer(kExamples);
  const auto flags = std::make_shared<CodecBenchFlags>();
  flags->codecs = default_codecs();
  add_flags(*command, flags);
  command->callback([flags, &action] {
    std::shared_ptr<JsonLines> json;
    if (flags->json_path) json = told_by("--json", [&] { return std::make_shared<JsonLines>(*flags->json_path); });
    action = [flags, json] { return guarded([&] { return run_bench(*flags, json.get()); }); };
  });
}

}  // namespace tulle::cli
