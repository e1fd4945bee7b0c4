#include "tulle/gradient/step_log.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "base/json_lines.hpp"
#include "base/output_file.hpp"
#include "gradient/trace.hpp"
#include "tulle/comm/control.hpp"

namespace tulle::gradient {
namespace {

// What a rank tells the others about a step. All of it are doubles, so that it travels as it lies.
struct RankStep {
  double computing_seconds = 0;
  double exposed_seconds = 0;
  double bytes_sent = 0;
  double bytes_received = 0;
  double delivered = 0;
};

RankStep step_of(const Synchronizer& synchronizer) {
  RankStep step;
  for (ParameterId id = 0; id < synchronizer.parameters().size(); ++id) {
    const ParameterStats& stats = synchronizer.stats(id);
    step.computing_seconds += stats.accumulate_seconds + stats.select_seconds + stats.encode_seconds +
                              stats.decode_seconds + stats.mask_seconds + stats.apply_seconds;
    step.exposed_seconds += stats.wait_seconds;
    step.bytes_sent += static_cast<double>(stats.bytes_sent);
    step.bytes_received += static_cast<double>(stats.bytes_received);
    step.delivered += static_cast<double>(stats.delivered);
  }
  return step;
}

double values_of(const Synchronizer& synchronizer) {
  double values = 0;
  for (const Parameter& parameter : synchronizer.parameters()) values += static_cast<double>(parameter.size);
  return values;
}

std::string parameters_json(const Synchronizer& synchronizer) {
  std::vector<std::string> objects;
  for (ParameterId id = 0; id < synchronizer.parameters().size(); ++id) {
    objects.push_back(to_json(synchronizer.parameters()[id], synchronizer.stats(id)));
  }
  return fmt::format("[{}]", fmt::join(objects, ","));
}

}  // namespace

struct StepLog::State {
  State(Synchronizer& logged, StepLogOptions given)
      : synchronizer(logged),
        options(std::move(given)),
        channel(logged.communicator().channel(logged.end_channel() - 1)),
        recipe(to_string(logged.recipe())),
        last_seconds(now()) {}

  double now() const { return channel.engine()->transport().now(); }
  bool leads() const { return channel.rank() == 0; }
  std::string line_of(std::span<const Buffer> ranks, const StepNote& note) const;

  Synchronizer& synchronizer;
  StepLogOptions options;
  Communicator channel;  ///< the synchronizer's last one, which it keeps for logs
  std::string recipe;
  double last_seconds;  ///< when the last step was added
  std::uint64_t steps = 0;
  std::optional<JsonLines> lines;
  std::optional<OutputFile> trace_file;
  Trace trace;
};

StepLog::StepLog(std::unique_ptr<State> state) : state_(std::move(state)) {}
StepLog::StepLog(StepLog&&) noexcept = default;
StepLog& StepLog::operator=(StepLog&&) noexcept = default;
StepLog::~StepLog() = default;

StepLog StepLog::open(Synchronizer& synchronizer, const StepLogOptions& options) {
  Communicator communicator = synchronizer.communicator();
  return run_task(communicator, await_open(synchronizer, options));
}

Task<StepLog> StepLog::await_open(Synchronizer& synchronizer, StepLogOptions options) {
  auto state = std::make_unique<State>(synchronizer, std::move(options));
  const auto open_files = [&] {
    if (!state->leads()) return;
    if (!state->options.lines.empty()) state->lines.emplace(state->options.lines);
    if (!state->options.trace.empty()) state->trace_file.emplace(state->options.trace);
  };
  const std::exception_ptr failure = failure_of(open_files);
  Request<void> opened = ifail_together(state->channel, failure);
  co_await opened;
  co_return StepLog(std::move(state));
}

std::string StepLog::State::line_of(std::span<const Buffer> ranks, const StepNote& note) const {
  RankStep all;
  double bytes_sent_max = 0, exposed_max = 0;
  std::vector<double> rank_seconds;
  for (const Buffer& bytes : ranks) {
    const RankStep& rank = bytes.as<RankStep>().front();
    rank_seconds.push_back(rank.computing_seconds);
    all.bytes_sent += rank.bytes_sent;
    all.bytes_received += rank.bytes_received;
    all.delivered = std::max(all.delivered, rank.delivered);
    bytes_sent_max = std::max(bytes_sent_max, rank.bytes_sent);
    exposed_max = std::max(exposed_max, rank.exposed_seconds);
  }
  nlohmann::ordered_json object = {{"kind", "stats"},
                                   {"step", synchronizer.steps()},
                                   {"seconds", note.seconds.value_or(now() - last_seconds)},
                                   {"recipe", recipe},
                                   {"ranks", channel.size()},
                                   {"values", values_of(synchronizer)},
                                   {"density", all.delivered / std::max(1.0, values_of(synchronizer))},
                                   {"bytes_sent", all.bytes_sent},
                                   {"bytes_sent_max", bytes_sent_max},
                                   {"bytes_received", all.bytes_received},
                                   {"exposed_seconds", exposed_max},
                                   {"rank_seconds", rank_seconds}};
  if (note.loss) object["loss"] = *note.loss;
  std::string line = object.dump();
  if (options.parameters) line.insert(line.size() - 1, ",\"parameters\":" + parameters_json(synchronizer));
  return line;
}

void StepLog::add_step(const StepNote& note) {
  Task<> adding = await_add_step(note);
  run_task(state_->channel, adding);
}

Task<> StepLog::await_add_step(StepNote note) {
  const RankStep mine = step_of(state_->synchronizer);
  const Buffer bytes = Buffer::copy_of(std::as_bytes(std::span(&mine, 1)));
  Request<std::vector<Buffer>> gathering = igather_bytes(state_->channel, bytes);
  const std::vector<Buffer> ranks = co_await gathering;
  const auto write = [&] {
    if (state_->lines) state_->lines->append(state_->line_of(ranks, note));
  };
  const std::exception_ptr failure = failure_of(write);
  if (!state_->options.lines.empty()) {
    Request<void> written = ifail_together(state_->channel, failure);
    co_await written;
  }
  const bool is_traced = !state_->options.trace.empty() && state_->steps < state_->options.trace_steps;
  if (is_traced) state_->trace.add_step(state_->synchronizer);
  state_->steps += 1;
  state_->last_seconds = state_->now();
}

void StepLog::close() {
  Task<> closing = await_close();
  run_task(state_->channel, closing);
}

Task<> StepLog::await_close() {
  if (state_->options.trace.empty()) co_return;
  const std::string mine = state_->trace.events_of(state_->synchronizer, state_->channel.rank());
  Request<std::vector<Buffer>> gathering =
      igather_bytes(state_->channel, Buffer::copy_of(std::as_bytes(std::span(mine))));
  const std::vector<Buffer> ranks = co_await gathering;
  const auto write = [&] {
    if (!state_->trace_file) return;
    const std::string text = trace_of(ranks);
    state_->trace_file->write(std::as_bytes(std::span(text)));
    state_->trace_file->commit();
    state_->trace_file.reset();
  };
  const std::exception_ptr failure = failure_of(write);
  Request<void> written = ifail_together(state_->channel, failure);
  co_await written;
}

}  // namespace tulle::gradient
