#include "measure/traced_server.hpp"

#include "gradient/policy.hpp"
#include "measure/coding_cost.hpp"
#include "measure/traced_device.hpp"
#include "measure/traced_gradients.hpp"
#include "tulle/server/server.hpp"
#include "tulle/server/worker.hpp"

namespace tulle::measure {
namespace {

constexpr double kDeadlineSeconds = 1e9;

std::vector<gradient::Parameter> parameters_of(const TraceSpec& spec) {
  std::vector<gradient::Parameter> parameters;
  for (const gradient::TracedParameter& traced : spec.trace.parameters) parameters.push_back(traced.parameter);
  return parameters;
}

server::Options options_of(const TraceSpec& spec, const gradient::Recipe& recipe) {
  return {.servers = spec.servers, .push = recipe, .seed = spec.options.seed, .deadline_seconds = kDeadlineSeconds};
}

// A push is looked through for what is not finite. A pull is decoded, too: the model has what workers will have. Its
// error buffer is among the sums.
double coding_seconds(const TraceSpec& spec, const CodingCost& cost, gradient::ParameterId id, server::Coding coding) {
  const gradient::Parameter& parameter = spec.trace.parameters[id].parameter;
  const double decoding = cost.decode_seconds(parameter);
  return coding == server::Coding::decode_push ? decoding + cost.visit_seconds(parameter)
                                               : decoding + cost.encode_seconds(parameter);
}

// Its wires are the simulation's.
Profile host_of(const TraceSpec& spec, const Profile& simulated) {
  Profile host = spec.computes ? spec.trace.server : free_computation();
  host.alpha_seconds = simulated.alpha_seconds;
  host.beta_seconds_per_byte = simulated.beta_seconds_per_byte;
  return host;
}

Task<> serve(Communicator& communicator, const TraceSpec& spec, const gradient::Recipe& recipe) {
  const Profile host = host_of(spec, communicator.profile());
  communicator.set_profile(host);
  const CodingCost cost(host, recipe);
  const server::ServerOptions options{.coding_seconds = [&](gradient::ParameterId id, server::Coding coding) {
    return coding_seconds(spec, cost, id, coding);
  }};
  server::Server served = server::Server::make(communicator, parameters_of(spec), options_of(spec, recipe), options);
  Task<> serving = served.await_run();
  co_await serving;
}

class TracedWorker {
 public:
  TracedWorker(Communicator& communicator, const TraceSpec& spec, const gradient::Recipe& recipe,
               const std::vector<float>& common)
      : spec_(spec),
        recipe_(recipe),
        device_(communicator, spec),
        coding_(spec.trace.machine, recipe, spec.trace.launch_seconds),
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
      Task<> coding = device_.work(push_seconds(left - 1), step.pack_seconds);
      co_await coding;
      worker_.push(left - 1, gradients_.of(left - 1));
    }
    for (gradient::ParameterId id = 0; id < parts_.size(); ++id) {
      Task<> pulling = worker_.await_pull(id, parts_[id]);
      co_await pulling;
      Task<> applying = device_.work(pull_seconds(id), step.unpack_seconds);
      co_await applying;
    }
    step.seconds = device_.now() - began;
    step.exposed_seconds = step.seconds - (device_.busy_seconds() - busy);
    step.bytes_sent = static_cast<double>(worker_.stats().bytes_pushed - before.bytes_pushed);
    step.bytes_received = static_cast<double>(worker_.stats().bytes_pulled - before.bytes_pulled);
    step.delivered = static_cast<double>(spec_.trace.values());
    co_return step;
  }

  const gradient::Parameter& parameter(gradient::ParameterId id) const { return spec_.trace.parameters[id].parameter; }

  // The gradient is added to the error buffer, and what the server will decode is subtracted.
  double push_seconds(gradient::ParameterId id) const {
    if (!spec_.computes) return 0;
    const double encoding = coding_.encode_seconds(parameter(id));
    if (!recipe_.error_feedback || gradient::travels_whole(recipe_, parameter(id))) return encoding;
    const double adding = device_.pass_seconds(static_cast<double>(parameter(id).size));
    return adding + encoding + coding_.decode_seconds(parameter(id)) + coding_.visit_seconds(parameter(id));
  }

  double pull_seconds(gradient::ParameterId id) const {
    if (!spec_.computes) return 0;
    return coding_.decode_seconds(parameter(id)) + coding_.visit_seconds(parameter(id));
  }

  const TraceSpec& spec_;
  const gradient::Recipe& recipe_;
  TracedDevice device_;
  CodingCost coding_;
  server::Worker worker_;
  TracedGradients gradients_;
  std::vector<float> weights_;
  std::vector<std::span<float>> parts_;  // of the weights, by parameter
};

}  // namespace

Task<> run_with_server(Communicator& communicator, const TraceSpec& spec, const gradient::Recipe& recipe,
                       const std::vector<float>& common, std::vector<TracedStep>& steps) {
  if (communicator.rank() < spec.servers) {
    Task<> serving = serve(communicator, spec, recipe);
    co_await serving;
    co_return;
  }
  TracedWorker worker(communicator, spec, recipe, common);
  Task<TracedStep> running = worker.run();
  const TracedStep step = co_await running;
  steps.push_back(step);
}

}  // namespace tulle::measure
