#include "gradient/trace.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

namespace tulle::gradient {
namespace {

using Json = nlohmann::json;

constexpr double kMicroseconds = 1e6;

// Slices of one parameter on one rank, each after the other or inside of the one before.
class Slices {
 public:
  Slices(std::string& events, int rank, ParameterId parameter, double first_seconds)
      : events_(events), rank_(rank), parameter_(parameter), first_seconds_(first_seconds) {}

  void add(std::string_view name, double begin_seconds, double seconds, const std::string& arguments = "{}") {
    events_ += fmt::format(R"({}{{"name":"{}","ph":"X","pid":{},"tid":{},"ts":{:.3f},"dur":{:.3f},"args":{}}})",
                           events_.empty() ? "" : ",\n", name, rank_, parameter_,
                           (begin_seconds - first_seconds_) * kMicroseconds, std::max(0.0, seconds) * kMicroseconds,
                           arguments);
  }

 private:
  std::string& events_;
  int rank_;
  ParameterId parameter_;
  double first_seconds_;
};

void add_name(std::string& events, const char* what, int rank, ParameterId parameter, const std::string& name) {
  const Json event = {{"name", what}, {"ph", "M"}, {"pid", rank}, {"tid", parameter}, {"args", {{"name", name}}}};
  events += (events.empty() ? "" : ",\n") + event.dump();
}

std::string arguments_of(const ParameterStats& stats) {
  return fmt::format(R"({{"step":{},"route":"{}","taken":{},"delivered":{},"bytes_sent":{},"bytes_received":{}}})",
                     stats.step, stats.route, stats.taken, stats.delivered, stats.bytes_sent, stats.bytes_received);
}

// Computing is timed by the processor and may take longer than there is room for on a virtual clock, where it is cut.
void add_slices(Slices& slices, const ParameterStats& stats) {
  const double before = stats.exchange_begin_seconds - stats.begin_seconds;
  const double accumulate = std::min(stats.accumulate_seconds, before);
  slices.add("accumulate", stats.begin_seconds, accumulate);
  slices.add("select", stats.begin_seconds + accumulate, std::min(stats.select_seconds, before - accumulate));
  slices.add("exchange", stats.exchange_begin_seconds, stats.exchange_seconds, arguments_of(stats));
  slices.add("wait", stats.wait_begin_seconds, stats.wait_seconds);
  slices.add("mask", stats.exchange_end_seconds, stats.mask_seconds);
  slices.add("apply", stats.exchange_end_seconds + stats.mask_seconds, stats.apply_seconds);
}

}  // namespace

void Trace::add_step(const Synchronizer& synchronizer) {
  for (ParameterId id = 0; id < synchronizer.parameters().size(); ++id) {
    kept_.push_back({id, synchronizer.stats(id)});
  }
}

std::string Trace::events_of(const Synchronizer& synchronizer, int rank) const {
  std::string events;
  add_name(events, "process_name", rank, 0, fmt::format("rank {}", rank));
  for (ParameterId id = 0; id < synchronizer.parameters().size(); ++id) {
    add_name(events, "thread_name", rank, id, synchronizer.parameters()[id].name);
  }
  double first_seconds = std::numeric_limits<double>::infinity();
  for (const Kept& kept : kept_) first_seconds = std::min(first_seconds, kept.stats.begin_seconds);
  for (const Kept& kept : kept_) {
    Slices slices(events, rank, kept.parameter, first_seconds);
    add_slices(slices, kept.stats);
  }
  return events;
}

std::string trace_of(std::span<const Buffer> events_by_rank) {
  std::string text = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n";
  bool is_first = true;
  for (const Buffer& events : events_by_rank) {
    text += is_first ? "" : ",\n";
    text.append(reinterpret_cast<const char*>(events.data()), events.size());
    is_first = false;
  }
  return text + "\n]}\n";
}

}  // namespace tulle::gradient
