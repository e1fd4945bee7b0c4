#include "cli/tune/call_flags.hpp"

#include "cli/common/flags.hpp"
#include "cli/common/numbers.hpp"
#include "collectives/index_choice.hpp"

namespace tulle::cli {

void add_call_flags(CLI::App& command, CallFlags& flags) {
  PlannedCall& call = flags.call;
  add(command, "--dimension", "N", "values in a vector: 16777216, 2^24, 16M, 1e6 (16M)", [&](const std::string& text) {
    call.dimension = parse_count(text);
    if (call.dimension == 0) reject("--dimension", "must be 1 or more");
  });
  add_int(command, "--ranks-per-node", "that share a node's memory (1)", 1, 1 << 20,
          [&](int number) { call.ranks_per_node = number; });
  add(command, "--type", "f32|f64|f16|bf16|i32|i64", "of the values (f32)",
      [&](const std::string& text) { call.type = value_type_from(text); });
  add(command, "--index-coding", "NAME|smallest|auto", "of indices on the wire (auto)", [&](const std::string& text) {
    IndexChoice(text, Profile{});  // knows the name, or throws
    call.index_coding = text;
  });
  add(command, "--value-coding", "NAME[:OPTIONS]", "of values on the wire, for example qsgd:bits=4 (raw)",
      [&](const std::string& text) { call.value_coding = parse_value_codec(text); });
  add(command, "--input", "stream|accumulator",
      "exact sums of sparse streams, or rows that select that share of dense gradients (stream)",
      [&](const std::string& text) {
        if (text != "stream" && text != "accumulator") {
          reject("--input", "'" + text + "' is not one of stream, accumulator");
        }
        call.takes = text == "stream" ? Takes::stream : Takes::accumulator;
      });
  add_profile_flags(command, flags.network);
}

void finish(CallFlags& flags) {
  NamedProfile network = resolve_profile(flags.network);
  flags.network_name = std::move(network.name);
  flags.call.profile = network.profile;
}

}  // namespace tulle::cli
