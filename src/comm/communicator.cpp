#include "tulle/comm/communicator.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/require_deadline.hpp"
#include "comm/derive_context.hpp"
#include "comm/gather_bytes.hpp"

namespace tulle {

Communicator::Communicator(std::unique_ptr<Transport> transport)
    : engine_(Engine::make(std::move(transport))),
      context_(engine_->world()),
      channel_(&engine_->channel_of(*context_, 0)) {}

Communicator::Communicator(std::shared_ptr<Engine> engine, std::shared_ptr<Context> context, std::uint32_t channel)
    : engine_(std::move(engine)), context_(std::move(context)), channel_(&engine_->channel_of(*context_, channel)) {}

void Communicator::set_nodes(std::span<const int> nodes) {
  if (nodes.size() != static_cast<std::size_t>(size())) {
    throw Error(ErrorKind::bad_input, fmt::format("{} nodes given for {} ranks", nodes.size(), size()));
  }
  context_->set_nodes(PoolVector<int>(nodes.begin(), nodes.end()));
}

void Communicator::set_default_deadline(double seconds) {
  require_deadline(seconds, "the default deadline");
  context_->default_deadline_seconds = seconds;
}

Communicator Communicator::channel(std::uint32_t number) const { return {engine_, context_, number}; }

namespace {

// What every rank tells the others in a split.
struct Membership {
  std::int32_t color;
  std::int32_t key;
  std::uint32_t allocator;  ///< of the id that the rank would give the new context
  std::uint16_t slot;
  std::uint16_t generation;
};

struct Member {
  Membership membership;
  int rank;  ///< in the parent
};

Member read_member(const Buffer& record, int rank, const Context& parent) {
  if (record.size() != sizeof(Membership)) {
    throw Error(ErrorKind::bad_message, fmt::format("a split got {} bytes of rank {}", record.size(), rank))
        .with_peer(rank);
  }
  const Membership membership = record.as<Membership>().front();
  if (membership.allocator != static_cast<std::uint32_t>(parent.world_ranks[static_cast<std::size_t>(rank)])) {
    throw Error(ErrorKind::bad_message, fmt::format("rank {} proposes an id in a split that is not its own", rank))
        .with_peer(rank);
  }
  return {membership, rank};
}

// The first of the new members names the context, by an id that is its own and of which no other context can have it.
std::shared_ptr<Context> make_context(const Context& parent, std::span<const Member> members) {
  const Membership& first = members.front().membership;
  PoolVector<int> ranks;
  for (const Member& member : members) ranks.push_back(member.rank);
  return derive_context(parent, {first.allocator, first.slot, first.generation}, ranks);
}

Task<> agree_on_split(Operation& operation, Engine& engine, const Context& parent, int color, int key,
                      std::shared_ptr<ContextTable> table,
                      std::shared_ptr<std::optional<std::shared_ptr<Context>>> result) {
  ReservedId reserved(std::move(table));
  const Membership mine{color, key, reserved.id().allocator, reserved.id().slot, reserved.id().generation};
  const Buffer record = Buffer::copy_of(std::as_bytes(std::span(&mine, 1)));
  const PoolVector<Buffer> records = co_await gather_bytes(operation, record, 0);
  PoolVector<Member> members;
  for (int rank = 0; rank < operation.size(); ++rank) {
    const Member member = read_member(records[static_cast<std::size_t>(rank)], rank, parent);
    if (member.membership.color == color) members.push_back(member);
  }
  std::ranges::sort(members, {}, [](const Member& member) { return std::pair(member.membership.key, member.rank); });
  const std::shared_ptr<Context> context = make_context(parent, members);
  context->id == reserved.id() ? reserved.use() : reserved.give_back();
  engine.add_context(context);
  *result = context;
}

}  // namespace

Request<Communicator> Communicator::isplit(int color, int key) {
  OperationSettings settings;
  settings.signature.kind = OperationKind::split;
  const auto result = std::make_shared<std::optional<std::shared_ptr<Context>>>();
  auto operation = start(settings, [&](Operation& started) {
    return agree_on_split(started, *engine_, *context_, color, key, engine_->contexts().shared_from_this(), result);
  });
  return {engine_, std::move(operation), result};
}

void run_task(Communicator& communicator, Task<>& task) {
  communicator.engine()->spawn(task);
  communicator.engine()->progress_until([&] { return task.done(); });
  task.take();
}

void run_program(Communicator& communicator, const Program& program) {
  Task<> task = program(communicator);
  run_task(communicator, task);
}

}  // namespace tulle
