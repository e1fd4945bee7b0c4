// What the engine does with what arrives: messages of operations, datagrams, and failures.
#include <fmt/format.h>

#include <algorithm>

#include "comm/agreement_state.hpp"
#include "comm/context_table.hpp"
#include "comm/datagram_queue.hpp"
#include "comm/heartbeats.hpp"
#include "comm/poison.hpp"
#include "comm/thrown.hpp"
#include "tulle/comm/engine.hpp"

namespace tulle {

// ---------------------------------------------------------------- messages

void Engine::deliver(int source, Message message) {
  try {
    const MessageHeader header = decode_message_header(message.head.bytes());
    validate_segments(header, message.head.bytes(), message.segments);
    if (heartbeats_) heartbeats_->note_heard(source);
    route(header, source, std::move(message));
  } catch (...) {
    fail_peer(source, ErrorKind::bad_message,
              error_of(std::current_exception(), "a message could not be taken").what());
  }
}

void Engine::route(const MessageHeader& header, int source, Message message) {
  if (header.kind == MessageKind::beat) return take_beat(source, message);
  const std::shared_ptr<Context> context = contexts_->find(header.context);
  if (!context) {
    if (!contexts_->is_gone(header.context)) keep_early(early_[header.context], header, source, std::move(message));
    return;
  }
  if (!context->has(source)) {
    throw Error(ErrorKind::bad_message, "message field 'context': is a communicator that the sender is no member of");
  }
  if (header.epoch != context->epoch) return;  // of a membership that has ended
  switch (header.kind) {
    case MessageKind::data: route_data(*context, header, source, std::move(message)); return;
    case MessageKind::poison: take_poison(*context, header, source, message); return;
    case MessageKind::datagram: route_datagram(*context, header, source, std::move(message)); return;
    case MessageKind::beat: return;
  }
}

// Whether an operation was numbered is looked at before those that were are taken up: one that is started in between
// finds its message among the early ones.
void Engine::route_data(Context& context, const MessageHeader& header, int source, Message message) {
  Channel& channel = channel_of(context, header.channel);
  if (header.sequence >= next_sequence_of(channel)) {
    keep_early(channel.early[header.sequence], header, source, std::move(message));
    return;
  }
  Operation* operation = operation_of(channel, header.sequence);
  if (operation == nullptr) {
    adopt();
    operation = operation_of(channel, header.sequence);
  }
  // An operation that is over on this rank cannot be changed by a duplicate.
  if (operation != nullptr) hand_over(*operation, header, source, std::move(message));
}

void Engine::keep_early(EarlyMessages& messages, const MessageHeader& header, int source, Message message) {
  CountedBytes bytes(early_bytes_, message.bytes());
  if (early_bytes_->load() > most_early_bytes_) {
    throw Error(ErrorKind::bad_message, fmt::format("it sends for what this rank has not started, and all ranks "
                                                    "together have sent more than the {} bytes that it keeps",
                                                    most_early_bytes_));
  }
  messages.push_back({header, source, std::move(message), std::move(bytes)});
}

void Engine::hand_over(Operation& operation, const MessageHeader& header, int source, Message message) {
  const Context& context = *operation.context_;
  const int from = context.rank_of_world[static_cast<std::size_t>(source)];
  if (header.fingerprint == operation.fingerprint_) {
    operation.accept({from, header.step, message.depth, std::move(message.segments)}, header.last_call);
    return;
  }
  const CallSignature& mine = operation.signature();
  break_context(*operation.context_,
                Error(ErrorKind::mismatch,
                      fmt::format("ranks disagree on operation {} ({}): rank {} calls {}, rank {} calls {}",
                                  operation.sequence_, mine.differences(header.fingerprint), operation.rank(),
                                  mine.describe(), from, mine.describe(header.fingerprint)))
                    .at_rank(operation.rank())
                    .with_peer(from));
}

void Engine::take_early_messages(Operation& operation) {
  const auto found = operation.channel_.early.find(operation.sequence_);
  if (found == operation.channel_.early.end()) return;
  EarlyMessages messages = std::move(found->second);
  operation.channel_.early.erase(found);
  for (EarlyMessage& early : messages) {
    hand_over(operation, early.header, early.source, std::move(early.message));
  }
}

void Engine::add_context(const std::shared_ptr<Context>& context) {
  contexts_->add(context);
  const auto found = early_.find(context->id);
  if (found == early_.end()) return;
  EarlyMessages messages = std::move(found->second);
  early_.erase(found);
  for (EarlyMessage& early : messages) {
    try {
      route(early.header, early.source, std::move(early.message));
    } catch (const Error& error) {
      fail_peer(early.source, ErrorKind::bad_message, error.what());
    }
  }
}

// The answer may come from a coroutine's memory, so it is a driver's question; what it says about bytes that are not
// understood is told when they are decoded.
Buffer Engine::landing_for(int source, std::span<const std::byte> head, std::span<const Buffer> arrived,
                           std::size_t segment, std::uint64_t bytes) {
  (void)source;
  try {
    const MessageHeader header = decode_message_header(head);
    if (header.kind != MessageKind::data) return {};
    const std::shared_ptr<Context> context = contexts_->find(header.context);
    if (!context || header.epoch != context->epoch) return {};
    const Operation* const operation = operation_of(channel_of(*context, header.channel), header.sequence);
    if (operation == nullptr || operation->fingerprint_ != header.fingerprint) return {};
    for (const Operation::Landing* it = operation->first_landing_; it != nullptr; it = it->older_) {
      Buffer landing = it->function_(header.step, arrived, segment, bytes);
      if (!landing.empty()) return landing;
    }
  } catch (...) {
  }
  return {};
}

// ---------------------------------------------------------------- datagrams

void Engine::send_datagram(const Context& context, int to, std::uint32_t port, Segments segments) {
  MessageHeader header;
  header.kind = MessageKind::datagram;
  header.context = context.id;
  header.epoch = context.epoch;
  header.channel = port;
  Message message{encode_message_head(header, segments), std::move(segments), nullptr, 0};
  {
    const std::lock_guard lock(lock_);
    departures_.push_back({context.world_ranks[static_cast<std::size_t>(to)], std::move(message)});
  }
  wake_driver();
}

void Engine::route_datagram(Context& context, const MessageHeader& header, int source, Message message) {
  if (header.channel == kAgreementPort) {
    agreement_of(context, *this).take(context.rank_of_world[static_cast<std::size_t>(source)], message.segments);
    return;
  }
  const std::lock_guard lock(lock_);
  const auto port = context.ports.find(header.channel);
  if (port == context.ports.end()) {
    keep_early(context.early_datagrams[header.channel], header, source, std::move(message));
    return;
  }
  port->second->push({context.rank_of_world[static_cast<std::size_t>(source)], std::move(message.segments), {}},
                     ready_);
  if (waiters_ > 0) changed_.notify_all();
}

void Engine::open_port(Context& context, std::uint32_t port, DatagramQueue& queue) {
  const std::lock_guard lock(lock_);
  if (!context.ports.emplace(port, &queue).second) {
    throw Error(ErrorKind::bad_input, fmt::format("datagram port {} is open already", port)).at_rank(context.rank);
  }
  const auto early = context.early_datagrams.find(port);
  if (early != context.early_datagrams.end()) {
    for (EarlyMessage& datagram : early->second) {
      const int from = context.rank_of_world[static_cast<std::size_t>(datagram.source)];
      queue.push({from, std::move(datagram.message.segments), {}}, ready_);  // nobody waits yet
    }
    context.early_datagrams.erase(early);
  }
  if (context.peer_policy != PeerPolicy::tells) return;
  for (const auto& [source, error] : contexts_->losses) {
    if (context.has(source)) queue.push({context.rank_of_world[static_cast<std::size_t>(source)], {}, error}, ready_);
  }
}

void Engine::close_port(Context& context, std::uint32_t port) noexcept {
  const std::lock_guard lock(lock_);
  context.ports.erase(port);
}

void Engine::tell_ports(Context& context, int from, const Error& error) {
  const std::lock_guard lock(lock_);
  if (context.peer_policy != PeerPolicy::tells) return;
  for (const auto& [number, queue] : context.ports) queue->push({from, {}, error}, ready_);
  if (waiters_ > 0) changed_.notify_all();
}

// ---------------------------------------------------------------- failure

// A peer concerns those communicators that it is a member of.
void Engine::fail_peer(int source, ErrorKind kind, const std::string& reason) {
  if (heartbeats_) heartbeats_->forget(source);
  const std::string words = kind == ErrorKind::peer_failed ? fmt::format("rank {} is lost: {}", source, reason)
                                                           : fmt::format("from rank {}: {}", source, reason);
  const Error error = Error(kind, words).at_rank(world_->rank).with_peer(source);
  {
    const std::lock_guard lock(lock_);
    contexts_->losses.try_emplace(source, error);
  }
  for (const auto& context : contexts_->all()) {
    if (!context->has(source)) continue;
    break_context(*context, error);
    const int from = context->rank_of_world[static_cast<std::size_t>(source)];
    AgreementState& agreement = agreement_of(*context, *this);
    kind == ErrorKind::peer_failed ? agreement.lose(from) : agreement.doubt(from);
    tell_ports(*context, from, error);
  }
}

bool Engine::has_left(const Context& context, int rank) const {
  return std::find(left_.begin(), left_.end(), context.world_ranks[static_cast<std::size_t>(rank)]) != left_.end();
}

// Others may need nothing of it any more, so the communicator is broken only where an operation does.
void Engine::peer_left(int source) {
  if (heartbeats_) heartbeats_->forget(source);
  left_.push_back(source);
  const Error error = Error(ErrorKind::peer_failed, fmt::format("rank {} left the job: its program ended", source))
                          .at_rank(world_->rank)
                          .with_peer(source);
  {
    const std::lock_guard lock(lock_);
    contexts_->losses.try_emplace(source, error);
  }
  for (const auto& context : contexts_->all()) {
    if (!context->has(source)) continue;
    const int from = context->rank_of_world[static_cast<std::size_t>(source)];
    agreement_of(*context, *this).lose(from);
    tell_ports(*context, from, error);
    if (const std::optional<Error> vain = wait_in_vain(*context)) break_context(*context, *vain);
  }
}

// What the first operation that can never end says of itself.
std::optional<Error> Engine::wait_in_vain(Context& context) {
  for (const Channel* const channel : channels_of(context)) {
    for (const auto& [sequence, operation] : channel->running) {
      for (const Operation::Receive* const receive : operation->waiting_) {
        if (operation->is_in_vain(*receive)) return operation->left_alone(*receive);
      }
    }
  }
  return std::nullopt;
}

void Engine::take_poison(Context& context, const MessageHeader&, int source, const Message& message) {
  const int from = context.rank_of_world[static_cast<std::size_t>(source)];
  const Poison poison = decode_poison(message.segments);
  const Error error = Error(ErrorKind::peer_failed, fmt::format("rank {} failed: {}", from, poison.reason))
                          .at_rank(context.rank)
                          .with_peer(from);
  adopt();
  {
    const std::lock_guard lock(lock_);
    if (!context.broken) context.broken = error;
  }
  for (Channel* const channel : channels_of(context)) {
    const std::uint64_t first = poison.first_of(channel->number);
    channel->broken_from = std::min(channel->broken_from, first);
    for (const auto& [sequence, operation] : channel->running) {
      if (sequence >= first) operation->fail(error);
    }
  }
}

// The first error breaks the context: what is in flight on it fails, and so does every later call. The other ranks
// are told from which operation on; what came before may still complete there, or fail later and be told in turn.
void Engine::break_context(Context& context, const Error& error) {
  adopt();
  bool concerns_more = false;
  for (Channel* const channel : channels_of(context)) {
    const std::uint64_t first = first_unfinished(*channel);
    concerns_more |= first < channel->broken_from;
    channel->broken_from = std::min(channel->broken_from, first);
    for (const auto& [sequence, operation] : channel->running) operation->fail(error);
  }
  {
    const std::lock_guard lock(lock_);
    if (context.broken && !concerns_more) return;
    if (!context.broken) context.broken = error;
  }
  tell_peers(context, error);
}

void Engine::break_everything(const Error& error) {
  for (const auto& context : contexts_->all()) break_context(*context, error);
}

// Where there is no memory for that either, the others run into their deadlines.
void Engine::tell_peers(Context& context, const Error& error) try {
  Poison poison{.reason = error.what()};
  for (const Channel* const channel : channels_of(context)) {
    poison.first_sequences[channel->number] = channel->broken_from;
  }
  MessageHeader header;
  header.kind = MessageKind::poison;
  header.context = context.id;
  header.epoch = context.epoch;
  for (int peer = 0; peer < context.size(); ++peer) {
    if (peer == context.rank) continue;
    Segments segments = encode_poison(poison);
    Message message{encode_message_head(header, segments), std::move(segments), nullptr, 0};
    send(context.world_ranks[static_cast<std::size_t>(peer)], std::move(message));
  }
} catch (...) {
}

// The first operation of the channel that is not over yet, or that comes next.
std::uint64_t Engine::first_unfinished(const Channel& channel) {
  std::uint64_t first = next_sequence_of(channel);
  for (const auto& [sequence, operation] : channel.running) first = std::min(first, sequence);
  return first;
}

std::uint64_t Engine::next_sequence_of(const Channel& channel) {
  const std::lock_guard lock(lock_);
  return channel.next_sequence;
}

Operation* Engine::operation_of(Channel& channel, std::uint64_t sequence) {
  const auto found = channel.running.find(sequence);
  return found == channel.running.end() ? nullptr : found->second.get();
}

PoolVector<Channel*> Engine::channels_of(Context& context) {
  const std::lock_guard lock(lock_);
  PoolVector<Channel*> channels;
  for (const auto& [number, channel] : context.channels) channels.push_back(channel.get());
  return channels;
}

}  // namespace tulle
