#include "gradient/agreement.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "tulle/base/crc32c.hpp"
#include "tulle/base/error.hpp"
#include "tulle/comm/control.hpp"

namespace tulle::gradient {
namespace {

// A line for the recipe, one for the options, and one for each parameter.
std::string lines_of(std::span<const Parameter> parameters, const Recipe& recipe, const SynchronizerOptions& options) {
  std::string lines = fmt::format("recipe {}\n", to_string(recipe));
  lines += fmt::format(
      "options non_finite={} seed={} first_channel={} reproducible={} fuse_below={} fuse_values={} boundaries={} "
      "replica_check_every={} residual_norms={} undo={} phantoms={}\n",
      static_cast<int>(options.non_finite), options.seed, options.first_channel, options.reproducible,
      options.fuse_below, options.fuse_values, static_cast<int>(options.boundaries), options.replica_check_every,
      options.residual_norms, options.undo, options.phantoms);
  for (const Parameter& parameter : parameters) {
    lines += fmt::format("parameter {} of {} values, {}, {} rows\n", parameter.name, parameter.size,
                         to_string(parameter.role), parameter.rows);
  }
  return lines;
}

std::string_view line_at(std::string_view text, std::size_t place) {
  const std::size_t end = text.find('\n', place);
  return end == text.npos ? "nothing more" : text.substr(place, end - place);
}

// The start of the first line in which they differ.
std::size_t first_difference(std::string_view a, std::string_view b) {
  const auto [in_a, in_b] = std::ranges::mismatch(a, b);
  const auto place = static_cast<std::size_t>(in_a - a.begin());
  const std::size_t line_end = a.substr(0, place).rfind('\n');
  return line_end == a.npos ? 0 : line_end + 1;
}

std::string_view text_of(const Buffer& bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

[[noreturn]] void throw_first_difference(std::span<const Buffer> lists) {
  const std::string_view first = text_of(lists.front());
  for (std::size_t rank = 1; rank < lists.size(); ++rank) {
    const std::string_view other = text_of(lists[rank]);
    if (first == other) continue;
    const std::size_t place = first_difference(first, other);
    throw Error(ErrorKind::mismatch, fmt::format("ranks registered different things: rank 0 has {}, rank {} has {}",
                                                 line_at(first, place), rank, line_at(other, place)));
  }
  throw Error(ErrorKind::mismatch, "ranks registered different things");
}

}  // namespace

Task<> agree(Communicator& communicator, std::span<const Parameter> parameters, const Recipe& recipe,
             const SynchronizerOptions& options) {
  const std::string lines = lines_of(parameters, recipe, options);
  const double crc = crc32c(std::as_bytes(std::span(lines)));
  const double sides[] = {crc, -crc};
  Request<std::vector<double>> combining = icombine(communicator, sides, Op::max());
  const std::vector<double> largest = co_await combining;
  if (largest[0] == -largest[1]) co_return;
  Request<std::vector<Buffer>> gathering =
      igather_bytes(communicator, Buffer::copy_of(std::as_bytes(std::span(lines))));
  const std::vector<Buffer> lists = co_await gathering;
  throw_first_difference(lists);
}

}  // namespace tulle::gradient
