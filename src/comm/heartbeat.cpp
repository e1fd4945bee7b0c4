#include "tulle/comm/heartbeat.hpp"

#include <fmt/format.h>

#include <charconv>

#include "tulle/base/error.hpp"

namespace tulle {
namespace {

constexpr double kLeastInterval = 1e-3, kMostSeconds = 1e9;
constexpr double kIntervalsPerLimit = 10, kLeastIntervalsPerLimit = 2;

double parse_seconds(std::string_view text, const std::string& whole, const std::string& source) {
  double seconds = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  if (code == std::errc() && end == text.data() + text.size()) return seconds;
  throw Error(ErrorKind::bad_input,
              fmt::format("{}: '{}' is no heartbeat; it is INTERVAL or INTERVAL/LIMIT, in seconds, such as 0.5/10",
                          source, whole));
}

}  // namespace

Heartbeat complete_heartbeat(const Heartbeat& heartbeat) {
  Heartbeat complete = heartbeat;
  if (complete.limit_seconds == 0) complete.limit_seconds = kIntervalsPerLimit * complete.interval_seconds;
  const bool is_off = complete == Heartbeat();
  const bool is_possible = complete.interval_seconds >= kLeastInterval && complete.limit_seconds <= kMostSeconds &&
                           complete.limit_seconds >= kLeastIntervalsPerLimit * complete.interval_seconds;
  if (is_off || is_possible) return complete;
  throw Error(
      ErrorKind::bad_input,
      fmt::format("a heartbeat every {} s with a limit of {} s: the interval is {} s or more, and the limit two "
                  "intervals or more",
                  complete.interval_seconds, complete.limit_seconds, kLeastInterval));
}

Heartbeat parse_heartbeat(const std::string& text, const std::string& source) {
  const std::size_t slash = text.find('/');
  Heartbeat heartbeat;
  heartbeat.interval_seconds = parse_seconds(text.substr(0, slash), text, source);
  if (slash != std::string::npos) heartbeat.limit_seconds = parse_seconds(text.substr(slash + 1), text, source);
  return complete_heartbeat(heartbeat);
}

}  // namespace tulle
