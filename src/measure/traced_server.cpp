#include "measure/traced_server.hpp"

#include <algorithm>

#include "measure/random_values.hpp"
#include "measure/traced_device.hpp"
#include "tulle/base/philox.hpp"
#include "tulle/server/server.hpp"
#include "tulle/server/worker.hpp"

namespace tulle::measure {
namespace {

constexpr double kDeadlineSeconds = 1e9;
// Of every push and pull: the error buffer is added and written, the values are coded.
constexpr double kPushPasses = 3, kPullPasses = 1;

std::vector<gradient::Parameter> parameters_of(const TraceSpec& spec) {
  std::vector<gradient::Parameter> parameters;
  for (const gradient::TracedParameter& traced : spec.trace.parameters) parameters.push_back(traced.parameter);
  return parameters;
}

server::Options options_of(const TraceSpec& spec, const gradient::Recipe& recipe) {
  return {.servers = spec.servers, .push = recipe, .seed = spec.options.seed, .deadline_seconds = kDeadlineSeconds};
}

class TracedWorker {
 public:
  TracedWorker(Communicator& communicator, const TraceSpec& spec, const gradient::Recipe& recipe,
               const std::vector<float>& common)
      : spec_(spec),
        recipe_(recipe),
        device_(communicator, spec),
        worker_(server::Worker::make(communicator, parameters_of(spec), options_of(spec, recipe))),
        gradients_(common, spec, communicator.rank()),
        weights_(spec.trace.values()) {
    std::uint64_t first = 0;
    for (const gradient::TracedParameter& traced : spec.trace.parameters) {
      parts_.push_back(std::span(weights_).subspan(first, traced.parameter.size));
      first += traced.parameter.size;
    }
  }

  Task<TracedStep> run() {
    Task<> joining = worker_.await_join(parts_);
    co_await joining;
    TracedStep sum;
    for (int step = 0; step < spec_.warmup + spec_.steps; ++step) {
      gradients_.begin_step(step);
      step_locally();
      Task<TracedStep> stepping = run_step();
      const TracedStep one = co_await stepping;
      if (step >= spec_.warmup) sum.add(one, spec_.steps);
    }
    Task<> leaving = worker_.await_leave();
    co_await leaving;
    co_return sum;
  }

 private:
  // Pushes of local steps stay here; the caller counts their time.
  void step_locally() {
    for (std::uint64_t local = 1; local < recipe_.every; ++local) {
      for (gradient::ParameterId id = 0; id < parts_.size(); ++id) worker_.push(id, gradients_.of(id));
    }
  }

  Task<TracedStep> run_step() {
    TracedStep step;
    const double began = device_.now(), busy = device_.busy_seconds();
    const server::WorkerStats before = worker_.stats();
    Task<> forward = device_.work(spec_.trace.forward_seconds, step.compute_seconds);
    co_await forward;
    for (auto left = static_cast<gradient::ParameterId>(parts_.size()); left > 0; --left) {
      Task<> back = device_.work(spec_.trace.parameters[left - 1].backward_seconds, step.compute_seconds);
      co_await back;
      Task<> coding = device_.work(passes(kPushPasses, left - 1), step.pack_seconds);
      co_await coding;
      worker_.push(left - 1, gradients_.of(left - 1));
    }
    for (gradient::ParameterId id = 0; id < parts_.size(); ++id) {
      Task<> pulling = worker_.await_pull(id, parts_[id]);
      co_await pulling;
      Task<> applying = device_.work(passes(kPullPasses, id), step.unpack_seconds);
      co_await applying;
    }
    step.seconds = device_.now() - began;
    step.exposed_seconds = step.seconds - (device_.busy_seconds() - busy);
    step.bytes_sent = static_cast<double>(worker_.stats().bytes_pushed - before.bytes_pushed);
    step.bytes_received = static_cast<double>(worker_.stats().bytes_pulled - before.bytes_pulled);
    step.delivered = static_cast<double>(spec_.trace.values());
    co_return step;
  }

  double passes(double number, gradient::ParameterId id) const {
    return number * device_.pass_seconds(static_cast<double>(parts_[id].size()));
  }

  const TraceSpec& spec_;
  const gradient::Recipe& recipe_;
  TracedDevice device_;
  server::Worker worker_;
  TracedGradients gradients_;
  std::vector<float> weights_;
  std::vector<std::span<float>> parts_;  // of the weights, by parameter
};

}  // namespace

TracedGradients::TracedGradients(const std::vector<float>& common, const TraceSpec& spec, int rank) {
  const Philox seeds(spec.options.seed, 1);
  drawn_ = random_gradient(common, seeds.at(static_cast<std::uint64_t>(rank)));
  shifted_.resize(drawn_.size());
  first_value_.push_back(0);
  for (const gradient::TracedParameter& traced : spec.trace.parameters) {
    first_value_.push_back(first_value_.back() + traced.parameter.size);
  }
}

// A prime, so that many steps pass before a value is where it was.
void TracedGradients::begin_step(int step) {
  constexpr std::uint64_t kShift = 7919;
  const std::uint64_t shift = kShift * static_cast<std::uint64_t>(step) % drawn_.size();
  std::rotate_copy(drawn_.begin(), drawn_.begin() + static_cast<std::ptrdiff_t>(shift), drawn_.end(), shifted_.begin());
}

std::span<const float> TracedGradients::of(gradient::ParameterId id) const {
  return std::span(shifted_).subspan(first_value_[id], first_value_[id + 1] - first_value_[id]);
}

Task<> run_with_server(Communicator& communicator, const TraceSpec& spec, const gradient::Recipe& recipe,
                       const std::vector<float>& common, std::vector<TracedStep>& steps) {
  if (communicator.rank() < spec.servers) {
    server::Server served = server::Server::make(communicator, parameters_of(spec), options_of(spec, recipe), {});
    Task<> serving = served.await_run();
    co_await serving;
    co_return;
  }
  TracedWorker worker(communicator, spec, recipe, common);
  Task<TracedStep> running = worker.run();
  const TracedStep step = co_await running;
  steps.push_back(step);
}

}  // namespace tulle::measure
