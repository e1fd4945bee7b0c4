#include "tulle/comm/communicator.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace tulle {

Communicator::Communicator(std::unique_ptr<Transport> transport)
    : engine_(std::make_shared<Engine>(std::move(transport))), context_(engine_->world()) {}

void Communicator::set_nodes(std::span<const int> nodes) {
  if (nodes.size() != static_cast<std::size_t>(size())) {
    throw Error(ErrorKind::bad_input, fmt::format("{} nodes given for {} ranks", nodes.size(), size()));
  }
  context_->set_nodes(PoolVector<int>(nodes.begin(), nodes.end()));
}

// What every rank tells the others in a split.
struct Communicator::Membership {
  std::int32_t color;
  std::int32_t key;
  std::int32_t rank;
  std::uint32_t context_id;
};

// Bruck's dissemination: in round t a rank hands the first 2^t memberships it knows to the rank 2^t before it.
Task<> Communicator::agree_on_split(Operation& operation, Communicator parent, Membership mine,
                                    std::shared_ptr<std::optional<Communicator>> result) {
  const int size = operation.size();
  PoolVector<Membership> known{mine};
  Step step = 0;
  for (int distance = 1; distance < size; distance *= 2, ++step) {
    const auto count = static_cast<std::size_t>(std::min(distance, size - distance));
    Segments segments;
    segments.push_back(Buffer::copy_of(std::as_bytes(std::span(known).first(count))));
    operation.send((operation.rank() + size - distance) % size, step, std::move(segments), 0);
    const Incoming incoming = co_await operation.receive((operation.rank() + distance) % size, step);
    if (incoming.segments.size() != 1 || incoming.segments[0].size() != count * sizeof(Membership)) {
      throw Error(ErrorKind::bad_message,
                  "a split needs other memberships than rank " + std::to_string(incoming.from) + " sent");
    }
    const auto records = incoming.segments.front().as<Membership>();
    known.insert(known.end(), records.begin(), records.end());
  }

  auto context = std::make_shared<Context>(*parent.context_);
  context->next_sequence = 0;
  context->history.clear();
  context->rank_of_world.assign(parent.context_->rank_of_world.size(), -1);
  context->world_ranks.clear();
  PoolVector<int> nodes;
  std::sort(known.begin(), known.end(), [](const Membership& a, const Membership& b) {
    return std::pair(a.key, a.rank) < std::pair(b.key, b.rank);
  });
  for (const Membership& member : known) {
    context->id = static_cast<std::uint16_t>(std::max<std::uint32_t>(context->id, member.context_id));
    if (member.color != mine.color) continue;
    const int world_rank = parent.context_->world_ranks[static_cast<std::size_t>(member.rank)];
    if (member.rank == mine.rank) context->rank = context->size();
    context->rank_of_world[static_cast<std::size_t>(world_rank)] = context->size();
    context->world_ranks.push_back(world_rank);
    nodes.push_back(parent.context_->nodes[static_cast<std::size_t>(member.rank)]);
  }
  context->set_nodes(std::move(nodes));
  parent.engine_->add_context(context);
  *result = Communicator(parent.engine_, context);
}

Request<Communicator> Communicator::isplit(int color, int key) {
  CallSignature signature;
  signature.kind = OperationKind::split;
  const auto result = std::make_shared<std::optional<Communicator>>();
  const std::uint16_t context_id = engine_->reserve_context_id();
  auto operation = engine_->start(context_, signature, 0, false, [&](Operation& started) {
    return agree_on_split(started, *this, Membership{color, key, rank(), context_id}, result);
  });
  return {engine_, std::move(operation), result};
}

void run_program(Communicator& communicator, const Program& program) {
  Task<> task = program(communicator);
  communicator.engine()->spawn(task);
  communicator.engine()->progress_until([&] { return task.done(); });
  task.take();
}

}  // namespace tulle
