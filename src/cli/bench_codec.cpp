// tulle bench codec: how fast each coding is beside a memcpy of the same values, and how near it comes to the entropy.
//
// Codings of one case run in turn, with memcpy among them, so that what disturbs the machine disturbs all alike.

#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <numbers>

#include "base/json_lines.hpp"
#include "base/progress.hpp"
#include "cli/commands.hpp"
#include "cli/flags.hpp"
#include "cli/machine.hpp"
#include "cli/numbers.hpp"
#include "cli/race.hpp"
#include "cli/table.hpp"
#include "cli/value_file.hpp"
#include "stream/synthetic.hpp"
#include "tulle/base/philox.hpp"
#include "tulle/codec/registry.hpp"

namespace tulle::cli {
namespace {

struct CodecBenchFlags {
  std::uint64_t count = 14'700'000;
  std::vector<double> densities{0.001, 0.01};
  std::vector<std::string> distributions{"gaussian", "heavy"};
  std::vector<ValueCodec> codecs;
  std::string input;  ///< a file of f32 instead of the distributions
  int repeats = 7;
  std::optional<std::string> json_path;
};

/// One direction of one coding, timed beside the others of its case.
struct Contender {
  std::string name;
  std::string_view direction;
  double bits = 0;   ///< of a value or an index
  double limit = 0;  ///< entropy of an index; 0 for values
  bool verified = false;
  std::function<void()> run;
  std::vector<double> seconds;
};

struct Case {
  std::string name;
  std::optional<double> density;
  std::uint64_t items = 0;
  std::vector<Contender> contenders;  ///< the first is memcpy
};

double seconds_of(const std::function<void()>& run) {
  const auto start = std::chrono::steady_clock::now();
  run();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Gaussian by Box and Muller; heavy tails by taking the cube.
Buffer random_values(std::uint64_t count, bool heavy) {
  Buffer buffer = Buffer::allocate(count * sizeof(float));
  Philox random(1);
  for (float& value : buffer.as_mutable<float>()) {
    const double radius = std::sqrt(-2 * std::log(1 - random.uniform()));
    const double normal = radius * std::cos(2 * std::numbers::pi * random.uniform());
    value = static_cast<float>(heavy ? normal * normal * normal : normal);
  }
  return buffer;
}

Buffer magnitudes_of(const Buffer& values) {
  Buffer result = Buffer::copy_of(values.bytes());
  for (float& value : result.as_mutable<float>()) value = std::fabs(value);
  return result;
}

Contender memcpy_of(const Buffer& source) {
  Buffer target = Buffer::copy_of(source.bytes());
  return {.name = "memcpy", .direction = "copy", .bits = 32, .verified = true, .run = [source, target]() mutable {
            std::memcpy(target.data_for_landing(), source.data(), source.size());
          }};
}

// Exact codings give the same bits; the others at least point the same way.
bool verify(const ValueCodec& codec, const Buffer& values, const Buffer& decoded) {
  if (fidelity_of(codec.coding, ValueType::f32) == Fidelity::exact) {
    return std::ranges::equal(values.bytes(), decoded.bytes());
  }
  double product = 0;
  for (std::size_t i = 0; i < values.as<float>().size(); ++i) product += values.as<float>()[i] * decoded.as<float>()[i];
  return product > 0 && std::isfinite(product);
}

void add_value_contenders(Case& bench, const ValueCodec& codec, const Buffer& values) {
  const Buffer coded = encode_values(codec, ValueType::f32, values, {});
  const Buffer landing = decode_values(codec.coding, ValueType::f32, coded.bytes(), bench.items);
  const Contender both{.name = to_string(codec),
                       .bits = 8.0 * static_cast<double>(coded.size()) / static_cast<double>(bench.items),
                       .verified = verify(codec, values, landing)};
  Contender encoding = both, decoding = both;
  encoding.direction = "encode";
  encoding.run = [=] { encode_values(codec, ValueType::f32, values, {}); };
  decoding.direction = "decode";
  decoding.run = [=, count = bench.items] {
    decode_values(codec.coding, ValueType::f32, coded.bytes(), count, landing);
  };
  bench.contenders.insert(bench.contenders.end(), {encoding, decoding});
}

Case value_case(const std::string& name, const Buffer& values, std::span<const ValueCodec> codecs) {
  Case bench{.name = name, .items = values.size() / sizeof(float), .contenders = {memcpy_of(values)}};
  for (const ValueCodec& codec : codecs) {
    const bool one_sign = codec.coding == ValueCoding::same_sign_mean;
    add_value_contenders(bench, codec, one_sign ? magnitudes_of(values) : values);
  }
  return bench;
}

void add_index_contenders(Case& bench, const IndexCodec& row, const AnyStream& stream, double limit) {
  const Buffer coded = row.encode(stream);
  const auto decode = [=] { return row.decode(coded.bytes(), stream.range(), stream.dimension(), stream.nnz(), {}); };
  const Contender both{.name = std::string(row.name),
                       .bits = 8.0 * static_cast<double>(coded.size()) / static_cast<double>(bench.items),
                       .limit = limit,
                       .verified = std::ranges::equal(decode().bytes(), stream.indices_buffer().bytes())};
  Contender encoding = both, decoding = both;
  encoding.direction = "encode";
  encoding.run = [=] { row.encode(stream); };
  decoding.direction = "decode";
  decoding.run = [=] { decode(); };
  bench.contenders.insert(bench.contenders.end(), {encoding, decoding});
}

Case index_case(double density, std::uint64_t count) {
  // A million indices or more, so that they do not stay in a cache.
  const auto nnz = std::max<std::uint64_t>(1'000'000, static_cast<std::uint64_t>(density * static_cast<double>(count)));
  const auto dimension = static_cast<std::uint64_t>(static_cast<double>(nnz) / density);
  const AnyStream stream = synthetic_stream({.dimension = dimension, .nnz = nnz});
  const double limit = index_entropy_bits(static_cast<double>(dimension), static_cast<double>(stream.nnz()));
  Case bench{.name = fmt::format("uniform indices, {}", density),
             .density = density,
             .items = stream.nnz(),
             .contenders = {memcpy_of(stream.indices_buffer())}};
  for (const IndexCodec& row : index_codecs()) add_index_contenders(bench, row, stream, limit);
  return bench;
}

std::string table_of(const Case& bench) {
  const double reference = quartiles(bench.contenders.front().seconds).median;
  std::vector<std::vector<std::string>> rows;
  for (const Contender& contender : bench.contenders) {
    const Quartiles seconds = quartiles(contender.seconds);
    rows.push_back({contender.name, std::string(contender.direction), fmt::format("{:.3f}", contender.bits),
                    contender.limit > 0 ? fmt::format("{:.3f}", contender.limit) : "-", format_seconds(seconds.median),
                    format_seconds(seconds.q1), format_seconds(seconds.q3),
                    fmt::format("{:.0f}", static_cast<double>(bench.items) / seconds.median * 1e-6),
                    fmt::format("{:.0f}", 100 * reference / seconds.median), contender.verified ? "OK" : "WRONG"});
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

void append_json(const Case& bench, JsonLines& json) {
  const double reference = quartiles(bench.contenders.front().seconds).median;
  const Machine machine = this_machine();
  for (const Contender& contender : bench.contenders) {
    const Quartiles seconds = quartiles(contender.seconds);
    nlohmann::ordered_json row{{"kind", "codec"},
                               {"codec", contender.name},
                               {"case", bench.name},
                               {"direction", contender.direction},
                               {"dimension", bench.items},
                               {"bits_per_value", contender.bits},
                               {"seconds_median", seconds.median},
                               {"seconds_q1", seconds.q1},
                               {"seconds_q3", seconds.q3},
                               {"reference_seconds", reference},
                               {"ratio", seconds.median / reference},
                               {"verified", contender.verified},
                               {"cpu", machine.cpu},
                               {"compiler", machine.compiler},
                               {"git_commit", machine.git_commit},
                               {"timestamp", utc_timestamp()}};
    if (bench.density) row["density"] = *bench.density;
    if (contender.limit > 0) row["entropy_bits"] = contender.limit;
    json.append(row.dump());
  }
}

// Returns whether all codings gave what they should.
bool race(Case bench, const CodecBenchFlags& flags, JsonLines* json) {
  Progress progress(bench.name, static_cast<std::uint64_t>(flags.repeats));
  for (int round = 0; round <= flags.repeats; ++round) {  // the first is not counted: it touches the memory
    for (Contender& contender : bench.contenders) {
      const double seconds = seconds_of(contender.run);
      if (round > 0) contender.seconds.push_back(seconds);
    }
    if (round > 0) progress.advance(1, "");
  }
  progress.clear();
  fmt::print("{}", table_of(bench));
  std::fflush(stdout);
  if (json != nullptr) append_json(bench, *json);
  return std::ranges::all_of(bench.contenders, &Contender::verified);
}

int run_bench(const CodecBenchFlags& flags, JsonLines* json) {
  const Machine machine = this_machine();
  fmt::print("# {}, one thread, {}; medians of {} rounds in which all take turns\n", machine.cpu, machine.compiler,
             flags.repeats);
  bool verified = true;
  if (!flags.input.empty()) {
    return race(value_case(flags.input, read_values(flags.input, ValueType::f32), flags.codecs), flags, json) ? 0 : 1;
  }
  for (const std::string& name : flags.distributions) {
    verified &= race(value_case(name, random_values(flags.count, name == "heavy"), flags.codecs), flags, json);
  }
  for (const double density : flags.densities) verified &= race(index_case(density, flags.count), flags, json);
  return verified ? 0 : 1;
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

std::vector<std::string> checked_distributions(const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    if (name != "gaussian" && name != "heavy")
      reject("--values", fmt::format("'{}' is neither gaussian nor heavy", name));
  }
  return names;
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
           [flags](const std::vector<std::string>& names) { flags->distributions = checked_distributions(names); });
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
