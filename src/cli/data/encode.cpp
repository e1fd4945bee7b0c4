// tulle encode: codes a file of raw values, and says what that saves and loses.

#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/commands.hpp"
#include "cli/common/flags.hpp"
#include "cli/common/numbers.hpp"
#include "cli/common/print.hpp"
#include "cli/common/value_file.hpp"

namespace tulle::cli {
namespace {

struct EncodeFlags {
  std::string in, out;
  ValueCodec codec{.coding = ValueCoding::three_lc};
  ValueType type = ValueType::f32;
  RoundingKey key;
  bool json = false;
};

struct CodingError {
  double largest = 0;
  double rms = 0;
  double relative = 0;  ///< length of the difference by that of the input
};

template <class V>
CodingError error_between(std::span<const V> values, std::span<const V> decoded) {
  CodingError error;
  double squares = 0, input_squares = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double value = static_cast<double>(values[i]), difference = static_cast<double>(decoded[i]) - value;
    error.largest = std::max(error.largest, std::fabs(difference));
    squares += difference * difference;
    input_squares += value * value;
  }
  error.rms = values.empty() ? 0 : std::sqrt(squares / static_cast<double>(values.size()));
  error.relative = input_squares == 0 ? 0 : std::sqrt(squares / input_squares);
  return error;
}

CodingError error_of(ValueType type, const Buffer& values, const Buffer& decoded) {
  return visit_value_type(type, [&]<class V>() {
    if constexpr (sizeof(V) == 2) {
      std::vector<float> wide[2];
      for (const V value : values.as<V>()) wide[0].push_back(static_cast<float>(value));
      for (const V value : decoded.as<V>()) wide[1].push_back(static_cast<float>(value));
      return error_between<float>(wide[0], wide[1]);
    } else {
      return error_between(values.as<V>(), decoded.as<V>());
    }
  });
}

template <class Function>
double seconds_of(Function function) {
  const auto start = std::chrono::steady_clock::now();
  function();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

struct EncodeReport {
  std::uint64_t count = 0;
  double bytes = 0;
  double coded_bytes = 0;
  double encode_seconds = 0;
  double decode_seconds = 0;
  CodingError error;

  double ratio() const { return bytes / std::max(1.0, coded_bytes); }
  double bits_per_value() const { return 8 * coded_bytes / std::max<double>(1, static_cast<double>(count)); }
};

void print_json(const EncodeFlags& flags, const EncodeReport& report) {
  const nlohmann::ordered_json row{{"codec", to_string(flags.codec)},
                                   {"type", to_string(flags.type)},
                                   {"count", report.count},
                                   {"bytes", report.bytes},
                                   {"coded_bytes", report.coded_bytes},
                                   {"ratio", report.ratio()},
                                   {"bits_per_value", report.bits_per_value()},
                                   {"error_largest", report.error.largest},
                                   {"error_rms", report.error.rms},
                                   {"error_relative", report.error.relative},
                                   {"encode_bytes_per_second", report.bytes / report.encode_seconds},
                                   {"decode_bytes_per_second", report.bytes / report.decode_seconds}};
  print(row.dump() + "\n");
}

void print_text(const EncodeFlags& flags, const EncodeReport& report) {
  print(fmt::format("{} {} values as {}: {} instead of {}\n", report.count, to_string(flags.type),
                    to_string(flags.codec), format_bytes(report.coded_bytes), format_bytes(report.bytes)));
  print(fmt::format("  ratio   {:.4g} x, {:.4g} bits a value\n", report.ratio(), report.bits_per_value()));
  print(fmt::format("  error   largest {:.4g}, RMS {:.4g}, relative {:.4g}\n", report.error.largest, report.error.rms,
                    report.error.relative));
  print(fmt::format("  speed   encode {}/s, decode {}/s, each run once\n",
                    format_bytes(report.bytes / report.encode_seconds),
                    format_bytes(report.bytes / report.decode_seconds)));
}

int encode(const EncodeFlags& flags) {
  const Buffer values = read_values(flags.in, flags.type);
  EncodeReport report{.count = values.size() / size_of(flags.type), .bytes = static_cast<double>(values.size())};
  CodedFile coded{.type = flags.type, .coding = flags.codec.coding, .count = report.count};
  Buffer decoded;
  report.encode_seconds = seconds_of([&] { coded.bytes = encode_values(flags.codec, flags.type, values, flags.key); });
  report.decode_seconds = seconds_of([&] {
    decoded = decode_values(coded.coding, coded.type, coded.bytes.bytes(), coded.count, {}, flags.codec.threads);
  });
  report.coded_bytes = static_cast<double>(coded.bytes.size());
  report.error = error_of(flags.type, values, decoded);
  write_coded(flags.out, coded);
  flags.json ? print_json(flags, report) : print_text(flags, report);
  return 0;
}

constexpr const char* kExamples = R"(Examples:
  tulle encode --codec three_lc:s=1.75 gradient.f32 gradient.tulle
  tulle encode --codec qsgd:bits=4,bucket=512,norm=max --seed 7 gradient.f32 gradient.tulle
  tulle list codecs
)";

}  // namespace

void add_encode_command(CLI::App& parent, Action& action) {
  CLI::App* const command = parent.add_subcommand("encode", "Code a file of raw values: ratio, error, speed");
  command->footer(kExamples);
  const auto flags = std::make_shared<EncodeFlags>();
  add(*command, "--codec", "NAME[:OPTION=VALUE,...]", "a value codec of 'tulle list codecs' (three_lc)",
      [flags](const std::string& text) { flags->codec = parse_value_codec(text); });
  add(*command, "--type", "TYPE", "of the values in the file: f32, f64, f16, bf16, i32, i64 (f32)",
      [flags](const std::string& text) { flags->type = value_type_from(text); });
  add(*command, "--seed", "N", "of stochastic rounding (0)",
      [flags](const std::string& text) { flags->key.seed = parse_count(text); });
  add_int(*command, "--threads", "0: all that there are (1)", 0, 4096, [flags](int n) { flags->codec.threads = n; });
  command->add_flag("--json", flags->json, "print one JSON object");
  command->add_option("in", flags->in, "raw little-endian values")->required();
  command->add_option("out", flags->out, "the coded file to write")->required();
  command->callback([flags, &action] { action = [flags] { return guarded([&] { return encode(*flags); }); }; });
}

}  // namespace tulle::cli
