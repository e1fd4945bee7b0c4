#include "tulle/server/worker.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <cmath>
#include <deque>
#include <optional>
#include <utility>

#include "gradient/accumulate.hpp"
#include "gradient/saved_state.hpp"
#include "server/agreement.hpp"
#include "server/compression.hpp"
#include "server/mail.hpp"
#include "tulle/base/error.hpp"
#include "tulle/codec/frame.hpp"

namespace tulle::server {
namespace {

// Longer would be felt in every pull; 0 would not be a wait.
constexpr double kMomentSeconds = 1e-9;

// Arrays of a worker's state.
constexpr const char *kPushError = "push_error", *kHeldWeight = "held_weight";

std::span<const float> array_of(const gradient::SavedParameter& parameter, std::string_view name) {
  const auto found = std::ranges::find(parameter.arrays, name, &gradient::SavedArray::name);
  return found == parameter.arrays.end() ? std::span<const float>() : found->values;
}

// A push of which this worker does not know yet whether it was accepted.
struct PendingPush {
  std::uint64_t base = 0, number = 0;
  Segments frame;  ///< to give back; none where nothing is kept
};

// A parameter as its worker sees it.
struct PushedTensor {
  Parameter parameter;
  int server = 0;
  CompressionContext context;
  std::uint64_t version = 0;        ///< of the model in the trainer's weights
  std::uint64_t steps = 0;          ///< pushes, those among them that were only held
  double held_weight = 0;           ///< of the pushes that are held, their sum
  std::deque<PendingPush> pending;  ///< oldest first
  std::deque<Letter> arrived;       ///< updates and models that were not applied yet
};

}  // namespace

struct Worker::State {
  State(Communicator its_communicator, std::vector<Parameter> its_parameters, const Options& its_options,
        const Place& its_place);
  ~State();
  void end_early(const std::string& reason) noexcept;

  PushedTensor& tensor(ParameterId parameter);
  void require_usable() const;
  void require_size(const PushedTensor& tensor, std::size_t values) const;
  void require_settled(const PushedTensor& tensor) const;

  Task<> join(std::vector<std::span<float>> weights);
  bool has_model(int server) const;
  void push(ParameterId parameter, std::span<const float> gradient, double weight);
  void skip(ParameterId parameter, double weight);
  void require_weight(const PushedTensor& tensor, double weight) const;
  bool is_due(PushedTensor& tensor, double weight);
  void send_push(ParameterId parameter, CodedChange change);
  Task<> pull(ParameterId parameter, std::span<float> weights);
  bool is_settled(const PushedTensor& tensor) const;
  std::size_t unsettled_after_arrived(const PushedTensor& tensor) const;
  Task<> leave();

  void take_arrived();
  Task<> look();
  Task<> receive_before(double end, const char* what, int server);
  void handle(Letter letter);
  [[noreturn]] void fail(const Error& error);

  void apply_arrived(PushedTensor& tensor, std::span<float> weights);
  void apply_letter(PushedTensor& tensor, const Letter& letter, std::span<float> weights);
  void apply_model(const PushedTensor& tensor, const Letter& letter, std::span<float> weights);
  void settle(PushedTensor& tensor, std::span<const AcceptedPush> accepted);
  void give_back(PushedTensor& tensor, const PendingPush& push);
  PoolVector<float> error_with_pending(const PushedTensor& tensor) const;

  Communicator communicator;
  Place place;
  Options options;
  std::vector<Parameter> parameters;
  std::vector<PushedTensor> tensors;
  std::vector<bool> goodbyes;  ///< by server
  WorkerStats stats;
  bool has_joined = false, has_left = false;
  std::optional<Error> failure;
  Mail mail;
};

Worker::State::State(Communicator its_communicator, std::vector<Parameter> its_parameters, const Options& its_options,
                     const Place& its_place)
    : communicator(std::move(its_communicator)),
      place(its_place),
      options(its_options),
      parameters(std::move(its_parameters)),
      goodbyes(static_cast<std::size_t>(options.servers)),
      mail(communicator, options.port, life_at(communicator.engine()->transport().now())) {
  const std::vector<int> owners = servers_of(parameters, options.servers);
  for (ParameterId id = 0; id < parameters.size(); ++id) {
    const CompressionContext context(options.push, parameters[id],
                                     {.seed = options.seed,
                                      .rank = static_cast<std::uint64_t>(place.rank),
                                      .position = id,
                                      .threads = options.threads,
                                      .holds = options.push.every > 1,
                                      .profile = communicator.profile()});
    tensors.push_back({.parameter = parameters[id], .server = owners[id], .context = context});
  }
}

// A server that hears nothing would wait for its deadline.
Worker::State::~State() { end_early(failure ? failure->what() : "the worker ended without leaving"); }

void Worker::State::end_early(const std::string& reason) noexcept {
  if (!has_joined || std::exchange(has_left, true)) return;
  try {
    const Body body = body_of(reason);
    for (int server = 0; server < options.servers; ++server) mail.send(server, {.kind = LetterKind::leave}, body);
  } catch (...) {
  }
}

PushedTensor& Worker::State::tensor(ParameterId parameter) {
  assert(parameter < tensors.size());
  return tensors[parameter];
}

void Worker::State::require_usable() const {
  if (failure) throw *failure;
  if (has_left) throw Error(ErrorKind::bad_input, "parameter server: this worker has left");
}

void Worker::State::require_size(const PushedTensor& tensor, std::size_t values) const {
  if (values == tensor.parameter.size) return;
  throw Error(ErrorKind::bad_input,
              fmt::format("{} has {} values, and {} were given", tensor.parameter.name, tensor.parameter.size, values));
}

// Else a gradient of the same model would be sent twice.
void Worker::State::require_settled(const PushedTensor& tensor) const {
  if (!has_joined) throw Error(ErrorKind::bad_input, "parameter server: push() before join()");
  if (is_settled(tensor)) return;
  throw Error(ErrorKind::bad_input, fmt::format("{} is pushed again before it was pulled", tensor.parameter.name));
}

// ---------------------------------------------------------------- joining and leaving

Task<> Worker::State::join(std::vector<std::span<float>> weights) {
  require_usable();
  if (weights.size() != tensors.size()) throw Error(ErrorKind::bad_input, "join() takes a span for each parameter");
  for (ParameterId id = 0; id < tensors.size(); ++id) require_size(tensors[id], weights[id].size());
  const Body description = body_of(description_of(parameters, options));
  for (int server = 0; server < options.servers; ++server) mail.send(server, {.kind = LetterKind::join}, description);
  has_joined = true;
  const double end = mail.now() + options.deadline_seconds;
  for (int server = 0; server < options.servers; ++server) {
    while (!has_model(server)) {
      Task<> receiving = receive_before(end, "has not sent its model", server);
      co_await receiving;
    }
  }
  for (ParameterId id = 0; id < tensors.size(); ++id) apply_arrived(tensors[id], weights[id]);
}

bool Worker::State::has_model(int server) const {
  return std::ranges::none_of(
      tensors, [&](const PushedTensor& tensor) { return tensor.server == server && tensor.arrived.empty(); });
}

Task<> Worker::State::leave() {
  require_usable();
  if (!has_joined) co_return;
  for (int server = 0; server < options.servers; ++server) mail.send(server, {.kind = LetterKind::leave});
  has_left = true;
  const double end = mail.now() + options.deadline_seconds;
  for (int server = 0; server < options.servers; ++server) {
    while (!goodbyes[static_cast<std::size_t>(server)]) {
      Task<> receiving = receive_before(end, "has not said goodbye", server);
      co_await receiving;
    }
  }
}

// ---------------------------------------------------------------- pushing

void Worker::State::push(ParameterId parameter, std::span<const float> gradient, double weight) {
  require_usable();
  PushedTensor& pushed = tensor(parameter);
  require_settled(pushed);
  require_size(pushed, gradient.size());
  if (const auto at = gradient::inspect(gradient).not_finite_at) {
    throw Error(ErrorKind::bad_input,
                fmt::format("the gradient of {} is not finite at index {}", pushed.parameter.name, *at));
  }
  require_weight(pushed, weight);
  if (!is_due(pushed, weight)) return pushed.context.hold(gradient);
  send_push(parameter, pushed.context.compress(gradient, pushed.steps));
}

// What was held for local steps goes out all the same.
void Worker::State::skip(ParameterId parameter, double weight) {
  require_usable();
  PushedTensor& pushed = tensor(parameter);
  require_settled(pushed);
  require_weight(pushed, weight);
  if (!is_due(pushed, weight)) return;
  if (options.push.every > 1) {
    const PoolVector<float> zeros(pushed.parameter.size);
    return send_push(parameter, pushed.context.compress(zeros, pushed.steps));
  }
  CodedChange nothing{.frame = {}, .decoded = AnyStream::empty(ValueType::f32, pushed.parameter.size)};
  encode_frame(nothing.decoded, {.sequence = pushed.steps}, {}, nothing.frame);
  send_push(parameter, std::move(nothing));
}

void Worker::State::require_weight(const PushedTensor& tensor, double weight) const {
  if (weight > 0 && std::isfinite(weight)) return;
  throw Error(ErrorKind::bad_input, fmt::format("{} is pushed with a weight of {}", tensor.parameter.name, weight));
}

bool Worker::State::is_due(PushedTensor& tensor, double weight) {
  tensor.steps += 1;
  tensor.held_weight += weight;
  return tensor.steps % options.push.every == 0;
}

void Worker::State::send_push(ParameterId parameter, CodedChange change) {
  PushedTensor& pushed = tensor(parameter);
  const Body body = body_of(std::move(change.frame));
  const LetterHead head{.kind = LetterKind::push,
                        .parameter = parameter,
                        .version = pushed.version,
                        .push = pushed.steps,
                        // The mean and not the sum, so that equal weights of 1 stay 1.
                        .weight = std::exchange(pushed.held_weight, 0) / static_cast<double>(options.push.every)};
  stats.bytes_pushed += mail.send(pushed.server, head, body);
  stats.pushes += 1;
  PendingPush pending{.base = pushed.version, .number = pushed.steps, .frame = {}};
  if (pushed.context.keeps_error()) pending.frame = body.segments;
  pushed.pending.push_back(std::move(pending));
}

// ---------------------------------------------------------------- pulling

bool Worker::State::is_settled(const PushedTensor& tensor) const { return tensor.pending.size() <= options.staleness; }

Task<> Worker::State::pull(ParameterId parameter, std::span<float> weights) {
  require_usable();
  PushedTensor& pulled = tensor(parameter);
  require_size(pulled, weights.size());
  const double end = mail.now() + options.deadline_seconds;
  Task<> looking = look();
  co_await looking;
  apply_arrived(pulled, weights);
  while (!is_settled(pulled)) {
    Task<> receiving = receive_before(end, pulled.parameter.name.c_str(), pulled.server);
    co_await receiving;
    apply_arrived(pulled, weights);
  }
}

void Worker::State::take_arrived() {
  while (std::optional<Letter> letter = mail.try_receive()) handle(std::move(*letter));
}

// Who does not wait must look: the simulated network catches up with a rank's clock only where that rank waits.
Task<> Worker::State::look() {
  take_arrived();
  while (options.staleness > 0) {
    Task<std::optional<Letter>> receiving = mail.receive(kMomentSeconds);
    std::optional<Letter> letter = co_await receiving;
    if (!letter) co_return;
    handle(std::move(*letter));
  }
}

// Throws deadline where nothing comes.
Task<> Worker::State::receive_before(double end, const char* what, int server) {
  Task<std::optional<Letter>> receiving = mail.receive(end - mail.now());
  std::optional<Letter> letter = co_await receiving;
  if (!letter) {
    fail(
        Error(ErrorKind::deadline, fmt::format("parameter server: no answer from the server of rank {} within {} s: {}",
                                               server, options.deadline_seconds, what))
            .with_peer(server));
  }
  handle(std::move(*letter));
}

void Worker::State::handle(Letter letter) {
  if (letter.from >= options.servers) return;  // another worker is gone: its servers know
  if (goodbyes[static_cast<std::size_t>(letter.from)]) return;
  if (letter.failure) {
    fail(Error(ErrorKind::peer_failed,
               fmt::format("parameter server: the server of rank {} is gone: {}", letter.from, letter.failure->what()))
             .with_peer(letter.from));
  }
  switch (letter.head.kind) {
    case LetterKind::model:
    case LetterKind::update:
      if (letter.head.parameter >= tensors.size()) break;
      return tensors[letter.head.parameter].arrived.push_back(std::move(letter));
    case LetterKind::goodbye: goodbyes[static_cast<std::size_t>(letter.from)] = true; return;
    case LetterKind::refusal:
      fail(Error(ErrorKind::peer_failed,
                 fmt::format("parameter server: the server of rank {} refuses: {}", letter.from, text_of(letter.body)))
               .with_peer(letter.from));
    default: break;
  }
  fail(Error(ErrorKind::bad_message, fmt::format("parameter server: rank {} sends what no server sends", letter.from))
           .with_peer(letter.from));
}

void Worker::State::fail(const Error& error) {
  failure = error.at_rank(place.rank);
  throw *failure;
}

// ---------------------------------------------------------------- the model

void Worker::State::apply_arrived(PushedTensor& tensor, std::span<float> weights) {
  while (!tensor.arrived.empty()) {
    const Letter letter = std::move(tensor.arrived.front());
    tensor.arrived.pop_front();
    try {
      apply_letter(tensor, letter, weights);
    } catch (const Error& error) {
      fail(Error(ErrorKind::bad_message, fmt::format("parameter server: from rank {} for {}: {}", letter.from,
                                                     tensor.parameter.name, error.what()))
               .with_peer(letter.from));
    }
    for (const Buffer& segment : letter.body) stats.bytes_pulled += segment.size();
    stats.bytes_pulled += kLetterHeadBytes + letter.head.accepted.size() * kAcceptedBytes;
  }
}

void Worker::State::apply_letter(PushedTensor& tensor, const Letter& letter, std::span<float> weights) {
  if (letter.head.kind == LetterKind::model) {
    apply_model(tensor, letter, weights);
    stats.models += 1;
  } else {
    if (letter.head.version != tensor.version + 1) {
      throw Error(ErrorKind::bad_message,
                  fmt::format("letter field 'version': {} does not follow {}", letter.head.version, tensor.version));
    }
    const AnyStream change = decode_change(letter.body, tensor.parameter.size, letter.head.version, options.threads);
    gradient::subtract(weights, change);
    stats.updates += 1;
  }
  tensor.version = letter.head.version;
  settle(tensor, letter.head.accepted);
}

void Worker::State::apply_model(const PushedTensor& tensor, const Letter& letter, std::span<float> weights) {
  if (letter.body.size() != 1 || letter.body.front().size() != tensor.parameter.size * sizeof(float)) {
    throw Error(ErrorKind::bad_message, "letter field 'body': is no model of this parameter");
  }
  std::ranges::copy(letter.body.front().as<float>(), weights.begin());
}

// No step that comes can take a push of a model so old.
void Worker::State::settle(PushedTensor& tensor, std::span<const AcceptedPush> accepted) {
  const auto me = static_cast<std::uint64_t>(place.rank);
  stats.accepted += std::erase_if(tensor.pending, [&](const PendingPush& push) {
    return std::ranges::find(accepted, AcceptedPush{me, push.number}) != accepted.end();
  });
  while (!tensor.pending.empty() && tensor.pending.front().base + options.staleness < tensor.version) {
    give_back(tensor, tensor.pending.front());
    tensor.pending.pop_front();
    stats.dropped += 1;
  }
}

// What arrived cannot be applied without the weights, but it tells which pushes it will settle.
std::size_t Worker::State::unsettled_after_arrived(const PushedTensor& tensor) const {
  const std::uint64_t newest = tensor.arrived.empty() ? tensor.version : tensor.arrived.back().head.version;
  const auto me = static_cast<std::uint64_t>(place.rank);
  const auto is_open = [&](const PendingPush& push) {
    const auto accepts = [&](const Letter& letter) {
      return std::ranges::find(letter.head.accepted, AcceptedPush{me, push.number}) != letter.head.accepted.end();
    };
    return push.base + options.staleness >= newest && std::ranges::none_of(tensor.arrived, accepts);
  };
  return static_cast<std::size_t>(std::ranges::count_if(tensor.pending, is_open));
}

void Worker::State::give_back(PushedTensor& tensor, const PendingPush& push) {
  if (push.frame.empty()) return;
  tensor.context.give_back(decode_change(push.frame, tensor.parameter.size, push.number, options.threads));
}

PoolVector<float> Worker::State::error_with_pending(const PushedTensor& tensor) const {
  CompressionContext context = tensor.context;
  for (const PendingPush& push : tensor.pending) {
    if (push.frame.empty()) continue;
    context.give_back(decode_change(push.frame, tensor.parameter.size, push.number, options.threads));
  }
  return {context.error().begin(), context.error().end()};
}

// ---------------------------------------------------------------- what users call

Worker::Worker(std::unique_ptr<State> state) : state_(std::move(state)) {}
Worker::Worker(Worker&&) noexcept = default;
Worker& Worker::operator=(Worker&&) noexcept = default;
Worker::~Worker() = default;

Worker Worker::make(Communicator communicator, std::vector<Parameter> parameters, const Options& options,
                    std::optional<Place> place) {
  const Place its_place = place.value_or(Place{communicator.rank(), communicator.size()});
  validate(options, its_place.ranks);
  require_parameters(parameters);
  if (std::min(communicator.rank(), its_place.rank) < options.servers) {
    throw Error(ErrorKind::bad_input,
                fmt::format("rank {} is a server: the first {} ranks are", its_place.rank, options.servers));
  }
  return Worker(std::make_unique<State>(std::move(communicator), std::move(parameters), options, its_place));
}

std::span<const Parameter> Worker::parameters() const { return state_->parameters; }

Task<> Worker::await_join(std::vector<std::span<float>> weights) { return state_->join(std::move(weights)); }
void Worker::join(std::span<const std::span<float>> weights) {
  Task<> joining = await_join({weights.begin(), weights.end()});
  run_task(state_->communicator, joining);
}

void Worker::push(ParameterId parameter, std::span<const float> gradient, double weight) {
  state_->push(parameter, gradient, weight);
}
void Worker::skip(ParameterId parameter, double weight) { state_->skip(parameter, weight); }

bool Worker::test(ParameterId parameter) {
  state_->communicator.engine()->progress();
  state_->take_arrived();
  return state_->unsettled_after_arrived(state_->tensor(parameter)) <= state_->options.staleness;
}

Task<> Worker::await_pull(ParameterId parameter, std::span<float> weights) { return state_->pull(parameter, weights); }
void Worker::pull(ParameterId parameter, std::span<float> weights) {
  Task<> pulling = await_pull(parameter, weights);
  run_task(state_->communicator, pulling);
}

Task<> Worker::await_leave() { return state_->leave(); }
void Worker::leave() {
  Task<> leaving = await_leave();
  run_task(state_->communicator, leaving);
}

void Worker::give_up(const Error& reason) noexcept {
  if (!state_->failure) state_->failure = reason;
  state_->end_early(reason.what());
}

std::span<const float> Worker::push_error(ParameterId parameter) const {
  return state_->tensor(parameter).context.error();
}
std::uint64_t Worker::version(ParameterId parameter) const { return state_->tensor(parameter).version; }
const WorkerStats& Worker::stats() const { return state_->stats; }

Buffer Worker::save_state() const {
  gradient::SavedState saved;
  saved.rank = static_cast<std::uint64_t>(state_->place.rank);
  saved.ranks = static_cast<std::uint64_t>(state_->place.ranks);
  saved.recipe = gradient::to_string(state_->options.push);
  for (const PushedTensor& tensor : state_->tensors) {
    gradient::SavedParameter parameter{
        .name = tensor.parameter.name, .size = tensor.parameter.size, .step = tensor.steps};
    const PoolVector<float> error = state_->error_with_pending(tensor);
    if (!error.empty())
      parameter.arrays.push_back({kPushError, saved.storage.emplace_back(error.begin(), error.end())});
    if (tensor.held_weight > 0) {
      const auto weight = static_cast<float>(tensor.held_weight);
      parameter.arrays.push_back({kHeldWeight, saved.storage.emplace_back(1, weight)});
    }
    saved.parameters.push_back(std::move(parameter));
  }
  return gradient::encode_state(saved);
}

void Worker::load_state(const Buffer& state) {
  const gradient::SavedState saved = gradient::decode_state(state);
  const auto refuse = [](const std::string& why) { throw Error(ErrorKind::bad_input, "state of a worker: " + why); };
  if (state_->stats.pushes > 0) refuse("it is loaded before the first push");
  if (saved.parameters.size() != state_->tensors.size()) refuse("it is of other parameters");
  for (std::size_t id = 0; id < state_->tensors.size(); ++id) {
    const PushedTensor& tensor = state_->tensors[id];
    const gradient::SavedParameter& parameter = saved.parameters[id];
    const bool fits = parameter.name == tensor.parameter.name && parameter.size == tensor.parameter.size;
    if (!fits) refuse(fmt::format("it has {} in place of {}", parameter.name, tensor.parameter.name));
    const std::span<const float> owed = array_of(parameter, kPushError);
    if (!owed.empty() && (owed.size() != parameter.size || !tensor.context.keeps_error())) {
      refuse(fmt::format("what it owes of {} does not fit", parameter.name));
    }
    const std::span<const float> weight = array_of(parameter, kHeldWeight);
    if (weight.size() > 1 || (weight.size() == 1 && !(weight[0] > 0 && std::isfinite(weight[0])))) {
      refuse(fmt::format("the weight of what it holds of {} is none", parameter.name));
    }
  }
  for (std::size_t id = 0; id < state_->tensors.size(); ++id) {
    const gradient::SavedParameter& parameter = saved.parameters[id];
    PushedTensor& tensor = state_->tensors[id];
    const std::span<const float> weight = array_of(parameter, kHeldWeight);
    tensor.steps = parameter.step;
    // A state that does not say it is of pushes that count alike.
    tensor.held_weight = weight.empty() ? static_cast<double>(parameter.step % state_->options.push.every) : weight[0];
    tensor.context.restore(array_of(parameter, kPushError));
  }
}

}  // namespace tulle::server
