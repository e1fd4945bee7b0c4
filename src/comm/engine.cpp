// The engine's life, what callers do, and the round that the driver makes. What arrives is in engine_messages.cpp,
// heartbeats are in engine_heartbeats.cpp.
#include "tulle/comm/engine.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <numeric>

#include "base/memory.hpp"
#include "comm/context_table.hpp"
#include "comm/heartbeats.hpp"
#include "comm/thrown.hpp"

namespace tulle {
namespace {

// The engine whose coroutines this thread is running.
thread_local Engine* running_engine = nullptr;

// What operations end with where there is no memory to say why. Made with the first engine.
const Error& no_memory() {
  static const Error error(ErrorKind::system, "there is no memory left, not even to say what for");
  return error;
}

// What `describe()` gives.
template <class Describe>
Error error_or_no_memory(Describe describe) noexcept {
  try {
    return describe();
  } catch (...) {
    return no_memory();
  }
}

// For what is done about an exception. Where there is no memory for that either, operations run into their deadlines.
template <class Work>
void attempt(Work work) noexcept {
  try {
    work();
  } catch (...) {
  }
}

}  // namespace

int& EngineLock::held_by_this_thread() {
  thread_local int held = 0;
  return held;
}

// ---------------------------------------------------------------- beginning and end

std::shared_ptr<Engine> Engine::make(std::unique_ptr<Transport> transport) {
  return std::shared_ptr<Engine>(new Engine(std::move(transport)), release);
}

Engine::Engine(std::unique_ptr<Transport> transport)
    : contexts_(std::make_shared<ContextTable>(transport->rank())),
      most_early_bytes_(machine_memory_bytes() / 2),
      transport_(std::move(transport)) {
  (void)no_memory();
  transport_->attach(*this);
  world_ = std::make_shared<Context>();
  world_->table = contexts_;
  world_->rank = transport_->rank();
  world_->world_ranks.resize(static_cast<std::size_t>(transport_->size()));
  std::iota(world_->world_ranks.begin(), world_->world_ranks.end(), 0);
  world_->rank_of_world = world_->world_ranks;
  PoolVector<int> nodes;
  for (const int rank : world_->world_ranks) nodes.push_back(transport_->node_of(rank));
  world_->set_nodes(std::move(nodes));
  world_->set_profile(transport_->default_profile());
  contexts_->add(world_);
}

// A coroutine may hold the last handle, and it ends on the thread that drives. The engine cannot go while it is
// running, and the progress thread cannot wait for itself; so the driver looks when it leaves.
void Engine::release(Engine* engine) {
  {
    const std::lock_guard lock(engine->lock_);
    if (engine->runs_coroutines_here()) {
      engine->is_orphaned_ = true;
      return;
    }
  }
  delete engine;
}

Engine::~Engine() {
  if (progress_thread_.joinable()) {
    {
      const std::lock_guard lock(lock_);
      stops_progress_thread_ = true;
    }
    transport_->wake();
    if (progress_thread_.get_id() == std::this_thread::get_id()) {
      progress_thread_.detach();
    } else {
      progress_thread_.join();
    }
  }
  // What was accepted for sending is sent, also where the progress thread had no time for it. Programs are their
  // owners', who are gone.
  spawned_.clear();
  settle();
  take_leave();
  // Coroutines that wait for something end here. Their destructors may look at their operations and contexts.
  for (const auto& [id, known] : contexts_->take_all()) {
    const std::shared_ptr<Context> context = known.lock();
    if (!context) continue;
    for (const auto& [number, channel] : context->channels) {
      for (const auto& [sequence, operation] : channel->running) operation->task_ = {};
      channel->running.clear();
    }
  }
}

// ---------------------------------------------------------------- callers

void Engine::submit(const std::shared_ptr<Operation>& operation) {
  {
    const std::lock_guard lock(lock_);
    const Context& context = *operation->context_;
    if (context.broken) {
      throw Error(ErrorKind::broken,
                  fmt::format("the communicator is broken by an earlier error: {}", context.broken->what()))
          .at_rank(context.rank);
    }
    const std::size_t borrowing = contexts_->borrowing + (operation->settings_.borrows ? 1 : 0);
    cancelled_.reserve(borrowing);
    submitted_.push_back(operation);
    contexts_->borrowing = borrowing;
    operation->set_sequence(operation->channel_.next_sequence++);
  }
  wake_driver();
}

// Whoever drives takes up what was queued. Where nobody does, this thread does so itself: messages leave at once.
void Engine::wake_driver() {
  if (runs_coroutines_here()) return;  // the loop that resumed the caller looks
  if (has_progress_thread_ || !take_drive()) {
    transport_->wake();
    return;
  }
  const Drive drive(*this);
  settle();
}

bool Engine::test(const Operation& operation) {
  if (!operation.is_finished()) progress();
  return operation.is_finished();
}

void Engine::wait(const Operation& operation) {
  progress_until([&] { return operation.is_finished(); });
  rethrow_error_of(operation);
}

std::size_t Engine::wait_any(std::span<const Operation* const> operations) {
  const auto first_finished = [&] {
    return std::ranges::find_if(operations, [](const Operation* operation) { return operation->is_finished(); });
  };
  progress_until([&] { return first_finished() != operations.end(); });
  return static_cast<std::size_t>(first_finished() - operations.begin());
}

void Engine::rethrow_error_of(const Operation& operation) {
  assert(operation.is_finished());
  if (operation.error_) throw *operation.error_;
}

// A coroutine of the operation may be running on the driver's thread right now, so the driver ends it.
void Engine::drop(const std::shared_ptr<Operation>& operation) noexcept {
  if (!operation->settings_.borrows || operation->is_finished()) return;
  {
    const std::lock_guard lock(lock_);
    cancelled_.push_back(operation);  // there is room since submit()
  }
  if (runs_coroutines_here()) {
    adopt();
    return;
  }
  wake_driver();
  progress_until([&] { return operation->is_finished(); });
}

void Engine::spawn(Task<>& program) {
  {
    const std::lock_guard lock(lock_);
    spawned_.push_back(&program);
  }
  transport_->wake();
}

void Engine::settle_now() {
  if (!take_drive()) return;
  const Drive drive(*this);
  settle();
}

bool Engine::progress() {
  if (runs_coroutines_here() || !take_drive()) return false;
  const Drive drive(*this);
  return round();
}

bool Engine::take_drive() {
  const std::lock_guard lock(lock_);
  return !std::exchange(is_driven_, true);
}

// What was queued after the last look, by a thread that found the drive taken, would wait for somebody to wait.
void Engine::leave_drive() {
  bool is_orphaned = false, has_more = false;
  {
    const std::lock_guard lock(lock_);
    is_driven_ = false;
    is_orphaned = is_orphaned_;
    has_more = !submitted_.empty() || !departures_.empty() || !cancelled_.empty() || wanted_heartbeat_;
    if (waiters_ > 0) changed_.notify_all();
  }
  if (is_orphaned) {
    delete this;
  } else if (has_more) {
    wake_driver();
  }
}

bool Engine::runs_coroutines_here() const { return running_engine == this; }

void Engine::require_outside_of_coroutines() const {
  if (!runs_coroutines_here()) return;
  throw Error(ErrorKind::bad_input,
              "a blocking call inside a program or an op that the engine runs would wait for ever, because nobody else "
              "resumes what it waits for: start the operation and co_await its request")
      .at_rank(world_->rank);
}

void Engine::start_progress_thread() {
  transport_->require_progress_thread();
  const std::lock_guard lock(lock_);
  if (has_progress_thread_) return;
  has_progress_thread_ = true;
  progress_thread_ = std::thread([this] { run_progress_thread(); });
}

void Engine::run_progress_thread() {
  progress_until([this] { return stops_progress_thread_ || is_orphaned_; });
}

Channel& Engine::channel_of(Context& context, std::uint32_t number) {
  if (number >= kMostChannels) {
    throw Error(ErrorKind::bad_input, fmt::format("channel {} is not below {}", number, kMostChannels));
  }
  const std::lock_guard lock(lock_);
  return context.channel(number);
}

// ---------------------------------------------------------------- the driver's round

bool Engine::round() {
  const bool was_ready = !ready_.empty() || !yielded_.empty();
  const bool arrived = poll_transport();
  for (detail::PromiseBase* const yielded : std::exchange(yielded_, {})) ready_.push(*yielded);
  settle();
  return arrived || was_ready;
}

// Nothing that a transport throws may end the thread that polls it.
bool Engine::poll_transport() {
  try {
    return transport_->poll();
  } catch (...) {
    attempt(
        [this] { break_everything(error_of(std::current_exception(), "the transport failed").at_rank(world_->rank)); });
    return true;
  }
}

void Engine::settle() {
  if (is_settling_) return;  // called from a coroutine that the loop below resumed
  is_settling_ = true;
  try {
    run_ready();
  } catch (...) {  // coroutines keep what they throw: this is the engine's own, such as no memory
    attempt(
        [this] { break_everything(error_of(std::current_exception(), "the engine failed").at_rank(world_->rank)); });
  }
  is_settling_ = false;
}

void Engine::run_ready() {
  adopt();
  run_polls();
  do {
    assert(EngineLock::held_by_this_thread() == 0 && "coroutines compute, and nothing computes under a lock");
    Engine* const outer = std::exchange(running_engine, this);
    ready_.run();
    running_engine = outer;
    check_deadlines();
    reap();
    adopt();
  } while (!ready_.empty());
}

// Takes up what callers have queued since the last time.
void Engine::adopt() {
  PoolVector<std::shared_ptr<Operation>> submitted;
  PoolVector<Departure> departures;
  PoolVector<Task<>*> programs;
  std::optional<Heartbeat> heartbeat;
  {
    const std::lock_guard lock(lock_);
    submitted.swap(submitted_);
    departures.swap(departures_);
    programs.swap(spawned_);
    if (wanted_heartbeat_) heartbeat.swap(wanted_heartbeat_);
  }
  if (heartbeat) begin_heartbeats(*heartbeat);
  const auto tell = [](void* engine) noexcept {
    auto& self = *static_cast<Engine*>(engine);
    const std::lock_guard lock(self.lock_);
    if (self.waiters_ > 0) self.changed_.notify_all();
  };
  for (Task<>* const program : programs) program->start(ready_, {tell, this});
  adopt(submitted);
  for (Departure& departure : departures) send(departure.peer, std::move(departure.message));
  const auto next_cancelled = [this]() -> std::shared_ptr<Operation> {  // one by one: the room for them stays
    const std::lock_guard lock(lock_);
    if (cancelled_.empty()) return nullptr;
    std::shared_ptr<Operation> last = std::move(cancelled_.back());
    cancelled_.pop_back();
    return last;
  };
  while (const std::shared_ptr<Operation> cancelled = next_cancelled()) end_cancelled(*cancelled);
}

// All are known before one of them is launched: a failure tells the peers which operations it concerns.
void Engine::adopt(std::span<const std::shared_ptr<Operation>> operations) {
  for (const auto& operation : operations) {
    running_ += 1;
    operation->state_ = Operation::State::running;
    try {
      operation->channel_.running.emplace(operation->sequence_, operation);
      deadlines_.insert({operation->deadline_, operation.get()});
    } catch (...) {  // no memory
      finish(*operation, error_or_no_memory([&] {
        return error_of(std::current_exception(), operation->describe()).at_rank(operation->rank());
      }));
    }
  }
  for (const auto& operation : operations) {
    if (!operation->is_finished()) launch(*operation);
  }
}

void Engine::launch(Operation& operation) {
  const Completion completion{[](void* ended) noexcept { static_cast<Operation*>(ended)->want_attention(); },
                              &operation};
  operation.task_.start(ready_, completion);
  if (operation.context_->broken) operation.fail(*operation.context_->broken);
  take_early_messages(operation);
}

void Engine::run_polls() {
  for (std::size_t i = 0; i < polling_.size(); ++i) {
    Operation& operation = *polling_[i];
    if (operation.poll_ == nullptr) continue;
    try {
      if (operation.poll_->ready_()) ready_.push(*std::exchange(operation.poll_, nullptr)->waiter_);
    } catch (...) {
      break_context(*operation.context_,
                    error_of(std::current_exception(), operation.describe()).at_rank(operation.rank()));
    }
  }
  std::erase_if(polling_, [](const Operation* operation) { return operation->poll_ == nullptr; });
}

void Engine::reap() {
  while (first_for_attention_ != nullptr) {
    Operation& operation = *std::exchange(first_for_attention_, first_for_attention_->next_for_attention_);
    operation.wants_attention_ = false;
    reap(operation);
  }
}

// An operation is over when its coroutine is, and when its messages have left: until then they may read memory that
// the caller is about to change.
void Engine::reap(Operation& operation) {
  if (operation.is_finished() || !operation.task_.done()) return;
  if (operation.state_ == Operation::State::running) {
    try {
      operation.task_.take();
    } catch (...) {
      finish(operation, error_or_no_memory([&] {
               return error_of(std::current_exception(), operation.describe()).at_rank(operation.rank());
             }));
      return;
    }
    operation.state_ = Operation::State::draining;
    operation.is_drained_ = operation.ticket_ == nullptr;
    operation.ticket_.reset();  // where messages still hold it, the last of them calls again
  }
  if (operation.error_) {
    finish(operation, operation.error_);
  } else if (operation.is_drained_) {
    finish(operation, std::nullopt);
  }
}

void Engine::finish(Operation& operation, std::optional<Error> error) {
  if (!error && !operation.inbox_.empty()) {
    error = Error(ErrorKind::bad_message,
                  fmt::format("{}: rank {} sent a message for step {} that nobody asked for", operation.describe(),
                              operation.inbox_.front().from, operation.inbox_.front().step))
                .at_rank(operation.rank());
  }
  const std::shared_ptr<Operation> alive = operation.shared_from_this();
  operation.error_ = error;
  if (error) attempt([&] { break_context(*operation.context_, *error); });
  forget(operation);
  if (operation.on_finished_ != nullptr) ready_.push(*operation.on_finished_);
  const std::lock_guard lock(lock_);
  if (operation.settings_.borrows) contexts_->borrowing -= 1;
  operation.state_.store(Operation::State::finished, std::memory_order_release);
  if (waiters_ > 0) changed_.notify_all();
}

// Nothing points at the operation or into its coroutine after this.
void Engine::forget(Operation& operation) {
  operation.waiting_.clear();
  operation.poll_ = nullptr;
  operation.task_ = {};
  operation.make_task_.reset();
  operation.inbox_.clear();
  std::erase(polling_, &operation);
  deadlines_.erase({operation.deadline_, &operation});
  Operation** link = &first_for_attention_;
  while (operation.wants_attention_ && *link != &operation) link = &(*link)->next_for_attention_;
  if (std::exchange(operation.wants_attention_, false)) *link = operation.next_for_attention_;
  operation.channel_.running.erase(operation.sequence_);
  running_ -= 1;
}

void Engine::end_cancelled(Operation& operation) {
  if (operation.is_finished()) return;
  operation.on_finished_ = nullptr;  // who awaited it held the request, and is being destroyed
  finish(operation, error_or_no_memory([&] {
           return Error(ErrorKind::broken,
                        fmt::format("{}: its request was dropped before the end, while it used memory of the caller's",
                                    operation.describe()))
               .at_rank(operation.rank());
         }));
}

void Engine::check_deadlines() {
  if (heartbeats_) look_at_heartbeats();
  {
    const std::lock_guard lock(lock_);
    contexts_->alarms.ring(*transport_, ready_);
  }
  while (!deadlines_.empty()) {
    const auto [deadline, operation] = *deadlines_.begin();
    if (transport_->now() < deadline) {
      transport_->set_timer(deadline);
      return;
    }
    deadlines_.erase(deadlines_.begin());
    if (operation->error_ || operation->is_finished()) continue;
    const Error late = error_or_no_memory([&] {
      return Error(ErrorKind::deadline,
                   fmt::format("{} did not finish within {} s: {}", operation->describe(),
                               operation->settings_.deadline_seconds, operation->describe_waiting()))
          .at_rank(operation->rank());
    });
    attempt([&] { break_context(*operation->context_, late); });
    operation->fail(late);  // also where that took more memory than there is
  }
}

}  // namespace tulle
