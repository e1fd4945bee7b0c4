// tulle convert and tulle featurize text: text files to the binary format.

#include <fmt/format.h>

#include <chrono>
#include <memory>

#include "base/progress.hpp"
#include "cli/commands.hpp"
#include "cli/common/data_flags.hpp"
#include "cli/common/flags.hpp"
#include "cli/common/numbers.hpp"
#include "cli/common/print.hpp"
#include "tulle/linear/csr_file.hpp"
#include "tulle/linear/featurize.hpp"

namespace tulle::cli {
namespace {

struct ConvertFlags {
  linear::DataOptions data;
  linear::FeaturizeOptions featurize;
  std::uint64_t features = 0;
  std::string in, out;
};

int convert(const ConvertFlags& flags, const linear::ParseLine& parse, std::uint64_t features) {
  const auto start = std::chrono::steady_clock::now();
  const ReaderPtr reader = open_filled(flags.in);
  linear::CsrWriter writer(flags.out);
  std::uint64_t rows_done = 0;
  Progress progress("converting", 0);
  const std::uint64_t bad_lines =
      linear::read_lines(reader, {}, parse, flags.data.text.skip_bad, [&](const linear::Rows& rows) {
        rows_done += rows.size();
        progress.advance(rows.size(), fmt::format("{} rows", rows_done));
        writer.add(rows);
      });
  progress.clear();
  const linear::CsrInfo info = writer.finish(features);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  print(fmt::format("{}: {} rows, {} features, {} non-zeros, {} blocks, in {}: {}/s\n", flags.out, info.rows,
                    info.features, info.nonzeros, info.blocks.size(), format_seconds(seconds),
                    format_bytes(static_cast<double>(reader->size()) / seconds)));
  if (bad_lines > 0) print(fmt::format("skipped {} bad lines\n", bad_lines));
  return 0;
}

void add_files(CLI::App& command, ConvertFlags& flags) {
  command.add_option("in", flags.in, "text, also .gz, .xz, .zst")->required();
  command.add_option("out", flags.out, "the file to write")->required();
}

constexpr const char* kConvertExamples = R"(Examples:
  tulle convert url.libsvm.xz url.tcsr
  tulle convert --format csv --skip-bad table.csv table.tcsr
)";
constexpr const char* kFeaturizeExamples = R"(Examples:
  tulle featurize text spam.tsv.xz spam.tcsr
  tulle featurize text --tokens --token-bigrams --values binary --dimension 3231961 urls.tsv.xz urls.tcsr
)";

}  // namespace

void add_convert_command(CLI::App& parent, Action& action) {
  CLI::App* const command = parent.add_subcommand("convert", "Text to the binary format that ranks read in parts");
  command->footer(kConvertExamples);
  const auto flags = std::make_shared<ConvertFlags>();
  add_data_flags(*command, flags->data);
  add(*command, "--features", "N", "dimension, where it is more than the largest index",
      [flags](const std::string& text) { flags->features = parse_count(text); });
  add_files(*command, *flags);
  command->callback([flags, &action] {
    action = [flags] {
      return guarded([&] {
        const auto parse = [&](std::string_view line, linear::Rows& rows) {
          return linear::parse_line(line, flags->data.text, rows);
        };
        return convert(*flags, parse, flags->features);
      });
    };
  });
}

void add_featurize_text_command(CLI::App& parent, Action& action) {
  CLI::App* const command = parent.add_subcommand("text", "Hash what occurs in lines 'label TAB text'");
  command->footer(kFeaturizeExamples);
  const auto flags = std::make_shared<ConvertFlags>();
  linear::FeaturizeOptions& options = flags->featurize;
  add(*command, "--dimension", "N", "features to hash into (2^24)",
      [&options](const std::string& text) { options.dimension = parse_count(text); });
  command->add_flag("!--no-trigrams", options.trigrams, "leave out trigrams of bytes");
  command->add_flag("--tokens", options.tokens, "add runs of letters and digits");
  command->add_flag("--token-bigrams", options.token_bigrams, "add two of them that follow one another");
  add(*command, "--values", "binary|count|unit", "1, how often, or counts scaled to length 1 (unit)",
      [&options](const std::string& text) { options.value = linear::feature_value_from(text); });
  command->add_flag("--skip-bad", flags->data.text.skip_bad, "count lines that are wrong instead of stopping");
  add_files(*command, *flags);
  command->callback([flags, &action] {
    if (flags->featurize.dimension < 1 || flags->featurize.dimension > linear::kMaxFeatures) {
      reject("--dimension", fmt::format("must be 1 to {}", linear::kMaxFeatures));
    }
    action = [flags] {
      return guarded([&] {
        const auto parse = [&](std::string_view line, linear::Rows& rows) {
          return linear::featurize_line(line, flags->featurize, rows);
        };
        return convert(*flags, parse, flags->featurize.dimension);
      });
    };
  });
}

}  // namespace tulle::cli
