#include "tulle/server/server.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "base/output_file.hpp"
#include "base/rank_files.hpp"
#include "gradient/accumulate.hpp"
#include "server/agreement.hpp"
#include "server/branch.hpp"
#include "server/held_tensor.hpp"
#include "server/mail.hpp"
#include "server/server_files.hpp"
#include "tulle/base/error.hpp"

namespace tulle::server {
namespace {

// Whether a step still waits for a worker.
enum class Presence { awaited, here, left, lost };

enum class Phase { made, serving, over };

// How soon the end of a job is seen that letters of newcomers bring about; they are handled beside the loop that waits.
constexpr double kLookSeconds = 0.02;
// Clocks and waits are rounded; so little before its end a deadline counts as over.
constexpr double kDeadlineSlack = 1e-9;

bool is_live(Presence presence) { return presence == Presence::awaited || presence == Presence::here; }

// Versions of a parameter.
struct Progress {
  std::uint64_t sent = 0;  ///< the newest that the worker was sent
  std::uint64_t used = 0;  ///< that its last push was computed on
};

struct WorkerState {
  Presence presence = Presence::awaited;
  bool has_joined = false;
  Branch* branch = nullptr;  ///< by which it writes; null: the job's own communicator
  std::map<ParameterId, Progress> progress;
};

}  // namespace

struct Server::State {
  State(Communicator its_communicator, std::vector<Parameter> its_parameters, const Options& its_options,
        const ServerOptions& its_server_options);
  ~State();

  HeldTensor& held(ParameterId parameter);
  WorkerState& worker(int rank) { return workers[static_cast<std::size_t>(rank - options.servers)]; }
  bool is_worker(int rank) const { return rank >= options.servers; }

  Task<> serve();
  void handle(Branch* branch, Letter letter);
  void handle(Branch& branch, Letter letter) noexcept;
  void on_join(Branch* branch, const Letter& letter);
  void adopt(const Communicator& group, const std::vector<int>& places);
  Task<> end_branches();
  void on_push(const Letter& letter);
  void on_leave(const Letter& letter);
  void lose(int rank, const std::string& reason);
  void refuse(int rank, const std::string& reason);
  void end_early(const std::string& reason) noexcept;
  [[noreturn]] void give_up_waiting() const;
  void require_somebody_left() const;

  bool has_live_worker() const;
  bool is_enough(ParameterId parameter);
  bool is_everybody_in(const HeldTensor& tensor) const;
  double seconds_to_wait() const;
  bool is_deadline_over() const { return mail.now() - heard_at >= options.deadline_seconds * (1 - kDeadlineSlack); }
  void settle();
  void settle(ParameterId parameter);
  void tell(int rank, ParameterId parameter);
  void tell_ahead(ParameterId parameter);
  void send_model(int rank, ParameterId parameter);
  void send(int rank, LetterHead head, const Body& body);
  void charge(const KernelReport& work) const;
  void charge(ParameterId parameter, Coding coding) const;

  gradient::SavedState empty_state() const;
  void note_for_checkpoint(ParameterId parameter);
  void write_or_tell(const gradient::SavedState& state);

  Communicator communicator;
  Options options;
  ServerOptions server_options;
  std::string description;
  std::vector<ParameterId> shard;
  std::map<ParameterId, HeldTensor> tensors;
  std::vector<WorkerState> workers;
  std::vector<Loss> losses;
  ServerStats stats;
  std::map<ParameterId, double> grace_ends;  ///< of open steps that have enough pushes, on the transport's clock
  std::map<std::uint64_t, gradient::SavedState> unfinished_checkpoints;  ///< by version
  ServerFiles files;
  Phase phase = Phase::made;
  bool expects_newcomers = false, is_over = false;
  std::vector<int> arrivals;
  std::exception_ptr failure;  ///< of handling a newcomer's letter
  double heard_at = 0;
  Mail mail;
  std::vector<std::unique_ptr<Branch>> branches;
};

Server::State::State(Communicator its_communicator, std::vector<Parameter> parameters, const Options& its_options,
                     const ServerOptions& its_server_options)
    : communicator(std::move(its_communicator)),
      options(its_options),
      server_options(its_server_options),
      description(description_of(parameters, options)),
      workers(static_cast<std::size_t>(communicator.size() - options.servers)),
      files(communicator.rank(), options.servers, options.backup > 0 || options.staleness > 0,
            server_options.checkpoint_run),
      mail(communicator, options.port, 0) {
  const std::vector<int> owners = servers_of(parameters, options.servers);
  for (ParameterId id = 0; id < parameters.size(); ++id) {
    if (owners[id] != communicator.rank()) continue;
    const CompressionContext pull(pull_recipe(options), parameters[id],
                                  {.seed = options.seed,
                                   .rank = static_cast<std::uint64_t>(communicator.rank()),
                                   .position = id,
                                   .threads = options.threads,
                                   .profile = communicator.profile()});
    shard.push_back(id);
    tensors.emplace(id, HeldTensor(parameters[id], pull, server_options.sgd, options.staleness));
  }
}

Server::State::~State() {
  end_early("the server has ended before its workers");
  branches.clear();  // their threads use the rest
}

HeldTensor& Server::State::held(ParameterId parameter) {
  const auto found = tensors.find(parameter);
  if (found == tensors.end()) {
    throw Error(ErrorKind::bad_input, fmt::format("parameter {} is not held by this server", parameter))
        .at_rank(communicator.rank());
  }
  return found->second;
}

// ---------------------------------------------------------------- letters

Task<> Server::State::serve() {
  phase = Phase::serving;
  heard_at = mail.now();
  while (has_live_worker()) {
    Task<std::optional<Letter>> receiving = mail.receive(seconds_to_wait());
    std::optional<Letter> letter = co_await receiving;
    if (failure) std::rethrow_exception(failure);
    if (letter) {
      handle(nullptr, std::move(*letter));
    } else if (!grace_ends.empty()) {
      settle();
    } else if (is_deadline_over()) {
      give_up_waiting();
    }
  }
  phase = Phase::over;
  require_somebody_left();
}

// Runs beside serve(), which throws what went wrong.
void Server::State::handle(Branch& branch, Letter letter) noexcept {
  if (is_over) return;
  const std::optional<int> place = branch.place_of(letter.from);
  if (!place) return;
  letter.from = *place;
  try {
    handle(&branch, std::move(letter));
  } catch (...) {
    failure = std::current_exception();
  }
}

// What a worker does wrong is that worker's end, and not the server's. What comes by another way than the worker's own
// is of a process that had the place before, or would like to have it.
void Server::State::handle(Branch* branch, Letter letter) {
  const int from = letter.from;
  if (!is_worker(from)) return;
  heard_at = mail.now();
  const bool joins = !letter.failure && letter.head.kind == LetterKind::join;
  if (worker(from).branch != branch && !joins) return;
  if (letter.is_gone) return lose(from, letter.failure->what());
  if (letter.failure) return refuse(from, letter.failure->what());
  if (worker(from).presence == Presence::lost && !joins) return;
  try {
    switch (letter.head.kind) {
      case LetterKind::join: return on_join(branch, letter);
      case LetterKind::push: return on_push(letter);
      case LetterKind::leave: return on_leave(letter);
      default: throw Error(ErrorKind::bad_message, "letter field 'kind': is a server's");
    }
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::bad_message) throw;
    refuse(from, error.what());
  }
}

void Server::State::on_join(Branch* branch, const Letter& letter) {
  WorkerState& joining = worker(letter.from);
  if (joining.branch != branch && joining.presence != Presence::lost) {
    Mail& way = branch != nullptr ? branch->mail() : mail;
    way.send(branch != nullptr ? branch->rank_of(letter.from) : letter.from, {.kind = LetterKind::refusal},
             body_of("another process has this worker's place"));
    return;
  }
  joining.branch = branch;
  const std::string difference = first_difference(description, text_of(letter.body));
  if (!difference.empty()) {
    joining.presence = Presence::awaited;  // so that it is told, and named
    return refuse(letter.from, "parameters or options differ: " + difference);
  }
  if (branch != nullptr) arrivals.push_back(letter.from);
  if (joining.has_joined) {
    stats.restarts += 1;
    for (auto& [id, tensor] : tensors) tensor.forget(letter.from);
    grace_ends.clear();  // begins anew where enough pushes are left
  }
  joining = {.presence = Presence::here, .has_joined = true, .branch = branch, .progress = {}};
  for (const ParameterId id : shard) send_model(letter.from, id);
}

void Server::State::on_push(const Letter& letter) {
  const auto found = tensors.find(letter.head.parameter);
  if (found == tensors.end()) throw Error(ErrorKind::bad_message, "letter field 'parameter': is not of this server");
  if (worker(letter.from).presence != Presence::here) {
    throw Error(ErrorKind::bad_message, "letter field 'kind': a push of a worker that has not joined");
  }
  HeldTensor& tensor = found->second;
  if (letter.head.version > tensor.version()) {
    throw Error(ErrorKind::bad_message, "letter field 'version': is of a model that does not exist yet");
  }
  AnyStream change = decode_change(letter.body, tensor.parameter().size, letter.head.push, options.threads);
  charge(letter.head.parameter, Coding::decode_push);
  if (gradient::has_non_finite(change)) throw Error(ErrorKind::bad_message, "letter field 'body': is not finite");
  for (const Buffer& segment : letter.body) stats.bytes_received += segment.size();
  stats.bytes_received += kLetterHeadBytes;
  const double weight = letter.head.weight;
  if (!(weight > 0) || !std::isfinite(weight))
    throw Error(ErrorKind::bad_message, "letter field 'weight': is no weight");
  worker(letter.from).progress[letter.head.parameter].used = letter.head.version;
  stats.dropped += tensor.offer(letter.from, {letter.head.version, letter.head.push, std::move(change), weight});
  tell(letter.from, letter.head.parameter);
  settle(letter.head.parameter);
}

void Server::State::on_leave(const Letter& letter) {
  const std::string reason = text_of(letter.body);
  if (!reason.empty()) return lose(letter.from, reason);
  worker(letter.from).presence = Presence::left;
  send(letter.from, {.kind = LetterKind::goodbye}, {});
  settle();
}

// Its pushes of the open step stay. One that has left in order may go.
void Server::State::lose(int rank, const std::string& reason) {
  WorkerState& lost = worker(rank);
  if (!is_live(lost.presence)) return;
  lost.presence = Presence::lost;
  losses.push_back({rank, reason});
  settle();
}

void Server::State::refuse(int rank, const std::string& reason) {
  if (is_live(worker(rank).presence)) send(rank, {.kind = LetterKind::refusal}, body_of(reason));
  lose(rank, reason);
}

// Workers may wait for a server that never began to serve, too.
void Server::State::end_early(const std::string& reason) noexcept try {
  if (std::exchange(phase, Phase::over) == Phase::over) return;
  for (int rank = options.servers; rank < communicator.size(); ++rank) {
    if (is_live(worker(rank).presence)) send(rank, {.kind = LetterKind::refusal}, body_of(reason));
  }
} catch (...) {
}

void Server::State::give_up_waiting() const {
  std::string ranks;
  for (std::size_t i = 0; i < workers.size(); ++i) {
    if (is_live(workers[i].presence)) ranks += fmt::format("{}{}", ranks.empty() ? "" : ", ", options.servers + i);
  }
  throw Error(ErrorKind::deadline, fmt::format("parameter server: nothing came for {} s; workers of ranks {} have "
                                               "neither left nor died",
                                               options.deadline_seconds, ranks))
      .at_rank(communicator.rank());
}

void Server::State::require_somebody_left() const {
  const auto has_left = [](const WorkerState& worker) { return worker.presence == Presence::left; };
  if (std::ranges::any_of(workers, has_left)) return;
  std::string who;
  for (const Loss& loss : losses) who += fmt::format("; rank {}: {}", loss.rank, loss.reason);
  throw Error(ErrorKind::peer_failed, "parameter server: every worker was lost" + who)
      .at_rank(communicator.rank())
      .with_peer(losses.back().rank);
}

// ---------------------------------------------------------------- newcomers

// Where this server has not noticed yet that a worker is gone, another one has. Who comes when the job is over sees
// that the group is gone.
void Server::State::adopt(const Communicator& group, const std::vector<int>& places) {
  if (is_over) return;
  for (const int place : places) {
    if (is_worker(place)) lose(place, "another process takes its place");
  }
  const auto take = [this](Branch& from, Letter letter) { handle(from, std::move(letter)); };
  branches.push_back(std::make_unique<Branch>(communicator, group, options.port, options.servers, places, take));
}

// Their threads wait for programs on the engine that runs this one, and cannot be waited for.
Task<> Server::State::end_branches() {
  is_over = true;
  for (const auto& branch : branches) branch->stop();
  while (!std::ranges::all_of(branches, [](const auto& branch) { return branch->is_done(); })) {
    Task<std::optional<Letter>> pausing = mail.receive(kLookSeconds);
    co_await pausing;
  }
}

// ---------------------------------------------------------------- steps

bool Server::State::has_live_worker() const { return std::ranges::any_of(workers, is_live, &WorkerState::presence); }

// All but the backups once their grace is over, or all that are left. Pushes of the dead count.
bool Server::State::is_enough(ParameterId parameter) {
  const HeldTensor& tensor = tensors.at(parameter);
  if (tensor.contributions() == 0) return false;
  if (is_everybody_in(tensor)) return true;
  if (tensor.contributions() + static_cast<std::size_t>(options.backup) < workers.size()) return false;
  const double now = mail.now();
  return now >= grace_ends.try_emplace(parameter, now + options.grace_seconds).first->second;
}

// Until a step's grace ends, where one has begun.
double Server::State::seconds_to_wait() const {
  double end = heard_at + options.deadline_seconds;
  if (expects_newcomers) end = std::min(end, mail.now() + kLookSeconds);
  for (const auto& [parameter, grace_end] : grace_ends) end = std::min(end, grace_end);
  return std::max(0.0, end - mail.now());
}

bool Server::State::is_everybody_in(const HeldTensor& tensor) const {
  for (std::size_t i = 0; i < workers.size(); ++i) {
    const bool is_missing = !tensor.has_contributed(options.servers + static_cast<int>(i));
    if (is_missing && is_live(workers[i].presence)) return false;
  }
  return true;
}

void Server::State::settle() {
  for (const ParameterId id : shard) settle(id);
}

void Server::State::settle(ParameterId parameter) {
  HeldTensor& tensor = tensors.at(parameter);
  while (is_enough(parameter)) {
    grace_ends.erase(parameter);
    const HeldTensor::Advance done = tensor.advance();
    charge(done.work);
    charge(parameter, Coding::encode_pull);
    stats.steps += 1;
    stats.accepted += done.accepted;
    stats.dropped += done.dropped;
    for (const int rank : done.workers) tell(rank, parameter);
    tell_ahead(parameter);
    note_for_checkpoint(parameter);
  }
}

// A worker that need not wait for its pushes would compute on a model that is a step of its own old. What it is sent
// without asking is bounded by what it has used, so that one that has stopped does not fill the server's memory: a push
// in time was computed on a model up to `staleness` old, and while the next is computed as many versions may come.
void Server::State::tell_ahead(ParameterId parameter) {
  if (options.staleness == 0) return;
  const std::uint64_t version = tensors.at(parameter).version();
  for (int rank = options.servers; rank < communicator.size(); ++rank) {
    if (version <= worker(rank).progress[parameter].used + 2 * (options.staleness + 1)) tell(rank, parameter);
  }
}

// Everything that is newer than what the worker was sent.
void Server::State::tell(int rank, ParameterId parameter) {
  HeldTensor& tensor = tensors.at(parameter);
  WorkerState& receiver = worker(rank);
  if (receiver.presence != Presence::here) return;
  std::uint64_t& sent = receiver.progress[parameter].sent;
  if (sent == tensor.version()) return;
  const std::vector<const StepUpdate*> updates = tensor.updates_since(sent);
  if (updates.empty()) return send_model(rank, parameter);
  for (const StepUpdate* const update : updates) {
    send(rank,
         {.kind = LetterKind::update, .parameter = parameter, .version = update->version, .accepted = update->accepted},
         update->body);
    stats.updates += 1;
  }
  sent = tensor.version();
}

void Server::State::send_model(int rank, ParameterId parameter) {
  HeldTensor& tensor = tensors.at(parameter);
  const LetterHead head{.kind = LetterKind::model,
                        .parameter = parameter,
                        .version = tensor.version(),
                        .accepted = tensor.last_accepted()};
  send(rank, head, tensor.model());
  worker(rank).progress[parameter].sent = tensor.version();
  stats.models += 1;
}

void Server::State::send(int rank, LetterHead head, const Body& body) {
  Branch* const branch = worker(rank).branch;
  stats.bytes_sent += branch != nullptr ? branch->mail().send(branch->rank_of(rank), std::move(head), body)
                                        : mail.send(rank, std::move(head), body);
}

void Server::State::charge(const KernelReport& work) const {
  const Profile& profile = communicator.profile();
  communicator.engine()->transport().charge(profile.gamma_sparse_seconds * static_cast<double>(work.sparse_items) +
                                            profile.gamma_dense_seconds * static_cast<double>(work.dense_items));
}

void Server::State::charge(ParameterId parameter, Coding coding) const {
  if (!server_options.coding_seconds) return;
  communicator.engine()->transport().charge(server_options.coding_seconds(parameter, coding));
}

// ---------------------------------------------------------------- checkpoints

gradient::SavedState Server::State::empty_state() const {
  gradient::SavedState state;
  state.rank = static_cast<std::uint64_t>(communicator.rank());
  state.ranks = static_cast<std::uint64_t>(options.servers);
  state.recipe = gradient::to_string(pull_recipe(options));
  return state;
}

// Parameters reach a version at different times; the file is written when the last of the shard has.
void Server::State::note_for_checkpoint(ParameterId parameter) {
  const HeldTensor& tensor = tensors.at(parameter);
  const std::uint64_t every = server_options.checkpoint_every;
  if (every == 0 || tensor.version() % every != 0) return;
  const auto place = unfinished_checkpoints.try_emplace(tensor.version(), empty_state()).first;
  gradient::SavedState& state = place->second;
  state.parameters.push_back(tensor.saved(state.storage));
  if (state.parameters.size() < shard.size()) return;
  state.steps = tensor.version();
  write_or_tell(state);
  unfinished_checkpoints.erase(unfinished_checkpoints.begin(), std::next(place));
}

// A disk that is full is no reason to lose the run: it goes on, and tries again when it is time.
void Server::State::write_or_tell(const gradient::SavedState& state) {
  try {
    files.write(server_options.checkpoint_path, state);
    stats.checkpoints += 1;
  } catch (const Error& error) {
    stats.failed_checkpoints += 1;
    if (server_options.on_checkpoint_failure) server_options.on_checkpoint_failure(error);
  }
}

// ---------------------------------------------------------------- what users call

Server::Server(std::unique_ptr<State> state) : state_(std::move(state)) {}
Server::Server(Server&&) noexcept = default;
Server& Server::operator=(Server&&) noexcept = default;
Server::~Server() = default;

Server Server::make(Communicator communicator, std::vector<Parameter> parameters, const Options& options,
                    const ServerOptions& server_options) {
  validate(options, communicator.size());
  require_parameters(parameters);
  if (communicator.rank() >= options.servers) {
    throw Error(ErrorKind::bad_input, fmt::format("rank {} is a worker: the first {} ranks are servers",
                                                  communicator.rank(), options.servers));
  }
  if (server_options.checkpoint_every > 0) {
    require_writable(path_of_rank(server_options.checkpoint_path, communicator.rank(), options.servers));
  }
  return Server(std::make_unique<State>(std::move(communicator), std::move(parameters), options, server_options));
}

int Server::ranks() const { return state_->communicator.size(); }
std::span<const ParameterId> Server::shard() const { return state_->shard; }

void Server::set_weights(ParameterId parameter, std::span<const float> weights) {
  HeldTensor& tensor = state_->held(parameter);
  if (weights.size() != tensor.parameter().size) {
    throw Error(ErrorKind::bad_input, fmt::format("{} has {} values, and {} were given", tensor.parameter().name,
                                                  tensor.parameter().size, weights.size()));
  }
  std::ranges::copy(weights, tensor.weights().begin());
}

std::span<const float> Server::weights(ParameterId parameter) const { return state_->held(parameter).weights(); }
std::span<const float> Server::pull_error(ParameterId parameter) const {
  return state_->held(parameter).pull().error();
}
std::span<const float> Server::velocity(ParameterId parameter) const { return state_->held(parameter).velocity(); }
std::uint64_t Server::version(ParameterId parameter) const { return state_->held(parameter).version(); }

Task<> Server::await_run() {
  std::exception_ptr failure;
  try {
    Task<> serving = state_->serve();
    co_await serving;
  } catch (const std::exception& error) {
    state_->end_early(error.what());
    failure = std::current_exception();
  }
  Task<> ending = state_->end_branches();
  co_await ending;
  if (failure) std::rethrow_exception(failure);
}

void Server::run() {
  Task<> running = await_run();
  run_task(state_->communicator, running);
}

void Server::give_up(const Error& reason) noexcept { state_->end_early(reason.what()); }

ServerStats Server::stats() const {
  ServerStats stats = state_->stats;
  for (const auto& [id, tensor] : state_->tensors) stats.encodings += tensor.pull().encodings();
  return stats;
}
std::span<const Loss> Server::losses() const { return state_->losses; }
bool Server::is_lost(int rank) const { return state_->worker(rank).presence == Presence::lost; }
std::span<const int> Server::arrivals() const { return state_->arrivals; }

namespace {

// A copy for this thread, which is not the one that serves.
void run_beside(Communicator communicator, Task<> task) { run_task(communicator, task); }

}  // namespace

void Server::expect_newcomers() { state_->expects_newcomers = true; }

std::vector<int> Server::vacancies() {
  std::vector<int> ranks;
  run_beside(state_->communicator, [](const State& state, std::vector<int>& lost) -> Task<> {
    for (std::size_t i = 0; i < state.workers.size(); ++i) {
      if (state.workers[i].presence == Presence::lost) lost.push_back(state.options.servers + static_cast<int>(i));
    }
    co_return;
  }(*state_, ranks));
  return ranks;
}

void Server::adopt(const Communicator& group, const std::vector<int>& places) {
  run_beside(state_->communicator,
             [](State& state, const Communicator& joined, const std::vector<int>& given) -> Task<> {
               state.adopt(joined, given);
               co_return;
             }(*state_, group, places));
}

void Server::save_checkpoint(const std::string& path) const {
  gradient::SavedState state = state_->empty_state();
  for (const auto& [id, tensor] : state_->tensors) {
    state.steps = std::max(state.steps, tensor.version());
    state.parameters.push_back(tensor.saved(state.storage));
  }
  state_->files.write(path, state);
}

bool Server::has_checkpoint(const std::string& path) const { return state_->files.is_there(path); }

LoadedCheckpoint Server::load_checkpoint(const std::string& path) {
  const ServerFiles::Read read = state_->files.read(path, state_->server_options.checkpoint_every);
  const std::vector<gradient::SavedState>& states = read.states;
  std::map<std::string, const gradient::SavedParameter*> by_name;
  for (const gradient::SavedState& state : states) {
    for (const gradient::SavedParameter& parameter : state.parameters) by_name[parameter.name] = &parameter;
  }
  for (const auto& [id, tensor] : state_->tensors) {
    const auto found = by_name.find(tensor.parameter().name);
    if (found == by_name.end()) {
      throw Error(ErrorKind::bad_input, fmt::format("{}: has no parameter {}", path, tensor.parameter().name));
    }
    tensor.require_fits(*found->second);
  }
  for (auto& [id, tensor] : state_->tensors) tensor.restore(*by_name.at(tensor.parameter().name));
  return {.run = states.front().run, .note = read.note};
}

}  // namespace tulle::server
