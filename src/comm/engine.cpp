#include "tulle/comm/engine.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <numeric>

#include "tulle/base/crc32c.hpp"

namespace tulle {

// Ranks that number nodes differently mean the same: what counts is who is the first on each member's node.
void Context::set_nodes(PoolVector<int> of_members) {
  nodes = std::move(of_members);
  PoolVector<std::pair<int, int>> first_members;  // of each node, by number
  for (int member = 0; member < static_cast<int>(nodes.size()); ++member) {
    const int node = nodes[static_cast<std::size_t>(member)];
    if (first_members.empty() || first_members.back().first < node) {
      first_members.emplace_back(node, member);
      continue;
    }
    const auto place = std::ranges::lower_bound(first_members, node, {}, &std::pair<int, int>::first);
    if (place->first != node) first_members.insert(place, {node, member});
  }
  node_count = static_cast<int>(first_members.size());
  PoolVector<int> canonical;
  canonical.reserve(nodes.size());
  for (const int node : nodes) {
    canonical.push_back(std::ranges::lower_bound(first_members, node, {}, &std::pair<int, int>::first)->second);
  }
  nodes_crc = crc32c(std::as_bytes(std::span(canonical)));
}

void Context::set_profile(const Profile& constants) {
  profile = constants;
  profile_crc = crc32c(std::as_bytes(std::span(&profile, 1)));
}

Engine::Engine(std::unique_ptr<Transport> transport) : transport_(std::move(transport)) {
  transport_->attach(*this);
  world_ = std::make_shared<Context>();
  world_->rank = transport_->rank();
  world_->world_ranks.resize(static_cast<std::size_t>(transport_->size()));
  std::iota(world_->world_ranks.begin(), world_->world_ranks.end(), 0);
  world_->rank_of_world = world_->world_ranks;
  PoolVector<int> nodes;
  for (const int rank : world_->world_ranks) nodes.push_back(transport_->node_of(rank));
  world_->set_nodes(std::move(nodes));
  world_->set_profile(transport_->default_profile());
  contexts_.push_back(world_);
}

Engine::~Engine() {
  if (progress_thread_.joinable()) {
    {
      const std::lock_guard lock(mutex_);
      stop_progress_thread_ = true;
    }
    progress_thread_.join();
  }
}

// ---------------------------------------------------------------- operations

std::shared_ptr<Operation> Engine::open(const std::shared_ptr<Context>& context, const CallSignature& signature,
                                        double deadline_seconds, bool checksum) {
  if (context->broken) {
    throw Error(ErrorKind::broken,
                fmt::format("the communicator is broken by an earlier error: {}", context->broken->what()))
        .at_rank(context->rank);
  }
  if (deadline_seconds <= 0) deadline_seconds = context->default_deadline_seconds;
  return std::allocate_shared<Operation>(PoolAllocator<Operation>(), *this, context, signature, deadline_seconds,
                                         checksum);
}

void Engine::launch(const std::shared_ptr<Operation>& operation) {
  active_.push_back(operation);
  operation->task_.start(ready_);
  take_early_messages(*operation);
  settle();
}

bool Engine::test(const std::shared_ptr<Operation>& operation) {
  const std::lock_guard lock(mutex_);
  if (operation->state_ != Operation::State::finished) progress();
  return operation->state_ == Operation::State::finished;
}

void Engine::wait(const std::shared_ptr<Operation>& operation) {
  const auto is_over = [&] { return operation->state_ == Operation::State::finished; };
  if (progress_thread_.joinable()) {
    std::unique_lock lock(mutex_);
    finished_.wait(lock, is_over);
  } else {
    progress_until(is_over);
  }
  rethrow_error_of(*operation);
}

void Engine::rethrow_error_of(const Operation& operation) {
  assert(operation.state_ == Operation::State::finished);
  if (operation.error_) throw *operation.error_;
}

bool Engine::Finished::await_ready() const { return operation_->state_ == Operation::State::finished; }
void Engine::Finished::await_suspend(std::coroutine_handle<> waiter) const { operation_->on_finished_ = waiter; }

void Engine::spawn(Task<>& program) {
  const std::lock_guard lock(mutex_);
  program.start(ready_);
}

std::uint16_t Engine::reserve_context_id() {
  const std::lock_guard lock(mutex_);
  if (next_context_id_ > 0xffff) throw Error(ErrorKind::unsupported, "more than 65535 communicators were split off");
  return static_cast<std::uint16_t>(next_context_id_++);
}

void Engine::add_context(const std::shared_ptr<Context>& context) {
  const std::lock_guard lock(mutex_);
  contexts_.push_back(context);
  next_context_id_ = std::max(next_context_id_, context->id + 1u);
  std::erase_if(early_, [&](const EarlyMessage& early) {
    const bool is_poison = early.header.context == context->id && early.header.kind == MessageKind::poison;
    if (is_poison) take_poison(context, early.header, early.source, early.message);
    return is_poison;
  });
}

// ---------------------------------------------------------------- progress

bool Engine::progress() {
  const std::lock_guard lock(mutex_);
  const bool was_ready = !ready_.empty();
  const bool arrived = transport_->poll();
  settle();
  return arrived || was_ready;
}

void Engine::settle() {
  if (settling_) return;  // called from a coroutine that the loop below resumed
  settling_ = true;
  run_polls();
  do {
    ready_.run();
    check_deadlines();
    reap();
  } while (!ready_.empty());
  settling_ = false;
}

void Engine::run_polls() {
  for (const auto& operation : active_) {
    if (operation->poll_ == nullptr) continue;
    try {
      if (operation->poll_->ready_()) ready_.push(std::exchange(operation->poll_, nullptr)->waiter_);
    } catch (const Error& error) {
      break_context(*operation->context_, error.at_rank(operation->rank()));
    }
  }
}

// An operation is over when its coroutine is, and when its messages have left: until then they may read memory that
// the caller is about to change.
void Engine::reap() {
  for (std::size_t i = 0; i < active_.size(); ++i) {
    Operation& operation = *active_[i];
    if (!operation.task_.done()) continue;
    if (operation.state_ == Operation::State::running) {
      try {
        operation.task_.take();
        operation.state_ = Operation::State::draining;
        operation.landing_ = nullptr;  // it may refer to what the coroutine held
      } catch (const Error& error) {
        finish(operation, error.at_rank(operation.rank()));
        continue;
      } catch (const std::exception& error) {
        finish(operation, Error(ErrorKind::system, error.what()).at_rank(operation.rank()));
        continue;
      }
    }
    if (operation.error_) {
      finish(operation, operation.error_);
    } else if (!operation.outstanding_sends()) {
      finish(operation, std::nullopt);
    }
  }
  drop_finished();
}

void Engine::finish(Operation& operation, std::optional<Error> error) {
  if (!error && !operation.inbox_.empty()) {
    error = Error(ErrorKind::bad_message,
                  fmt::format("{}: rank {} sent a message for step {} that nobody asked for", operation.describe(),
                              operation.inbox_.front().from, operation.inbox_.front().step))
                .at_rank(operation.rank());
  }
  operation.state_ = Operation::State::finished;
  operation.error_ = error;
  operation.task_ = {};
  operation.landing_ = nullptr;
  if (error) break_context(*operation.context_, *error);
  if (operation.on_finished_) ready_.push(operation.on_finished_);
  finished_.notify_all();
}

void Engine::drop_finished() {
  std::erase_if(active_, [](const auto& operation) { return operation->state_ == Operation::State::finished; });
}

void Engine::check_deadlines() {
  if (active_.empty()) return;
  const double now = transport_->now();
  for (std::size_t i = 0; i < active_.size(); ++i) {
    Operation& operation = *active_[i];
    if (operation.error_ || operation.state_ == Operation::State::finished) continue;
    if (now < operation.deadline_) {
      transport_->set_timer(operation.deadline_);
      continue;
    }
    break_context(*operation.context_,
                  Error(ErrorKind::deadline, fmt::format("{} did not finish within {} s: {}", operation.describe(),
                                                         operation.deadline_seconds_, operation.describe_waiting()))
                      .at_rank(operation.rank()));
  }
}

void Engine::start_progress_thread() {
  transport_->require_progress_thread();
  const std::lock_guard lock(mutex_);
  if (progress_thread_.joinable()) return;
  progress_thread_ = std::thread([this] { run_progress_thread(); });
}

void Engine::run_progress_thread() {
  const auto stopped = [this] {
    const std::lock_guard lock(mutex_);
    return stop_progress_thread_;
  };
  progress_until(stopped);
}

// ---------------------------------------------------------------- messages

void Engine::deliver(int source, Message message) {
  try {
    const MessageHeader header = decode_message_header(message.head.bytes());
    validate_segments(header, message.head.bytes(), message.segments);
    route(header, source, std::move(message));
  } catch (const Error& error) {
    fail_peer(source, error.what());
  }
}

void Engine::route(const MessageHeader& header, int source, Message message) {
  const std::shared_ptr<Context> context = context_of(header.context);
  if (context && header.kind == MessageKind::poison) {
    take_poison(context, header, source, message);
    return;
  }
  Operation* const operation = context ? operation_of(*context, header.sequence) : nullptr;
  if (operation != nullptr) {
    hand_over(*operation, header, source, std::move(message));
  } else if (!context || header.sequence >= context->next_sequence) {
    early_.push_back({header, source, std::move(message)});
  }
  // Else the operation is over on this rank, which a duplicate cannot change.
}

void Engine::hand_over(Operation& operation, const MessageHeader& header, int source, Message message) {
  const Context& context = *operation.context_;
  const int from = context.rank_of_world[static_cast<std::size_t>(source)];
  if (header.fingerprint == operation.fingerprint_) {
    operation.accept({from, header.step, message.depth, std::move(message.segments)});
    return;
  }
  const CallSignature& mine = operation.signature_;
  break_context(*operation.context_,
                Error(ErrorKind::mismatch,
                      fmt::format("ranks disagree on operation {} ({}): rank {} calls {}, rank {} calls {}",
                                  operation.sequence_, mine.differences(header.fingerprint), operation.rank(),
                                  mine.describe(), from, mine.describe(header.fingerprint)))
                    .at_rank(operation.rank())
                    .with_peer(from));
}

void Engine::take_early_messages(Operation& operation) {
  const auto belongs = [&](const EarlyMessage& early) {
    return early.header.context == operation.context_->id && early.header.sequence == operation.sequence_;
  };
  auto kept = early_.begin();  // by hand: std::stable_partition asks the system for memory
  for (EarlyMessage& early : early_) {
    if (belongs(early)) {
      hand_over(operation, early.header, early.source, std::move(early.message));
    } else {
      std::swap(*kept++, early);
    }
  }
  early_.erase(kept, early_.end());
}

void Engine::take_poison(const std::shared_ptr<Context>& context, const MessageHeader& header, int source,
                         const Message& message) {
  const int from = context->rank_of_world[static_cast<std::size_t>(source)];
  const auto text = message.segments.empty() ? std::span<const std::byte>() : message.segments.front().bytes();
  const Error error = Error(ErrorKind::peer_failed,
                            fmt::format("rank {} failed: {}", from,
                                        std::string_view(reinterpret_cast<const char*>(text.data()), text.size())))
                          .at_rank(context->rank)
                          .with_peer(from);
  context->broken_from = context->broken ? std::min(context->broken_from, header.sequence) : header.sequence;
  if (!context->broken) context->broken = error;
  for (const auto& operation : active_) {
    if (operation->context_ == context && operation->sequence_ >= header.sequence) operation->fail(error);
  }
}

Buffer Engine::landing_for(int source, std::span<const std::byte> head, std::span<const Buffer> arrived,
                           std::size_t segment, std::uint64_t bytes) {
  (void)source;
  const MessageHeader header = decode_message_header(head);
  const std::shared_ptr<Context> context = context_of(header.context);
  const Operation* const operation = context ? operation_of(*context, header.sequence) : nullptr;
  if (operation == nullptr || !operation->landing_ || operation->fingerprint_ != header.fingerprint) return {};
  return operation->landing_(header.step, arrived, segment, bytes);
}

void Engine::fail_peer(int source, const std::string& reason) {
  break_everything(Error(ErrorKind::bad_message, fmt::format("from rank {}: {}", source, reason))
                       .at_rank(transport_->rank())
                       .with_peer(source));
}

// ---------------------------------------------------------------- failure

// The first error breaks the context: what is in flight on it fails, and so does every later call. The other ranks
// are told from which operation on; what came before may still complete there, or fail later and be told in turn.
void Engine::break_context(Context& context, const Error& error) {
  std::uint32_t first_sequence = context.next_sequence;
  for (const auto& operation : active_) {
    if (operation->context_.get() != &context) continue;
    first_sequence = std::min(first_sequence, operation->sequence_);
    operation->fail(error);
  }
  if (context.broken && first_sequence >= context.broken_from) return;
  if (!context.broken) context.broken = error;
  context.broken_from = first_sequence;
  tell_peers(context, first_sequence, error);
}

void Engine::break_everything(const Error& error) {
  for (const auto& context : contexts_) break_context(*context, error);
}

void Engine::tell_peers(Context& context, std::uint32_t first_sequence, const Error& error) {
  MessageHeader header;
  header.kind = MessageKind::poison;
  header.context = context.id;
  header.sequence = first_sequence;
  const std::string_view text = error.what();
  for (int peer = 0; peer < context.size(); ++peer) {
    if (peer == context.rank) continue;
    Segments segments;
    segments.push_back(Buffer::copy_of(std::as_bytes(std::span(text))));
    Message message{encode_message_head(header, segments), std::move(segments), nullptr, 0};
    transport_->send(context.world_ranks[static_cast<std::size_t>(peer)], std::move(message));
  }
}

std::shared_ptr<Context> Engine::context_of(std::uint16_t id) const {
  const auto found =
      std::find_if(contexts_.begin(), contexts_.end(), [&](const auto& context) { return context->id == id; });
  return found == contexts_.end() ? nullptr : *found;
}

Operation* Engine::operation_of(const Context& context, std::uint32_t sequence) const {
  const auto found = std::find_if(active_.begin(), active_.end(), [&](const auto& operation) {
    return operation->context_.get() == &context && operation->sequence_ == sequence;
  });
  return found == active_.end() ? nullptr : found->get();
}

}  // namespace tulle
