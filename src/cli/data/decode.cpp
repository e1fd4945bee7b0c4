// tulle decode: the raw values of a file that `tulle encode` wrote.

#include <fmt/format.h>

#include <chrono>
#include <memory>

#include "cli/commands.hpp"
#include "cli/common/launch.hpp"
#include "cli/common/numbers.hpp"
#include "cli/common/print.hpp"
#include "cli/common/value_file.hpp"

namespace tulle::cli {
namespace {

struct Files {
  std::string in, out;
};

int decode(const Files& files) {
  const CodedFile coded = read_coded(files.in);
  const auto start = std::chrono::steady_clock::now();
  const Buffer values = decode_coded(coded, files.in);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  write_file(files.out, {}, values.bytes());
  const auto bytes = static_cast<double>(values.size());
  print(fmt::format("{} {} values from {}: {} out of {}, {}/s\n", coded.count, to_string(coded.type),
                    to_string(coded.coding), format_bytes(bytes), format_bytes(static_cast<double>(coded.bytes.size())),
                    format_bytes(bytes / seconds)));
  return 0;
}

constexpr const char* kExamples = R"(Examples:
  tulle decode gradient.tulle gradient.f32
)";

}  // namespace

void add_decode_command(CLI::App& parent, Action& action) {
  CLI::App* const command = parent.add_subcommand("decode", "Raw values from a file that 'tulle encode' wrote");
  command->footer(kExamples);
  const auto files = std::make_shared<Files>();
  command->add_option("in", files->in, "the coded file")->required();
  command->add_option("out", files->out, "raw values, little-endian")->required();
  command->callback([files, &action] { action = [files] { return guarded([&] { return decode(*files); }); }; });
}

}  // namespace tulle::cli
