#include "tulle/comm/shrink.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "comm/agreement_state.hpp"
#include "tulle/comm/control.hpp"

namespace tulle {
namespace {

// An id as a rank's value in the agreement: the first survivor's becomes the name of the new communicator.
constexpr int kAllocatorShift = 32, kSlotShift = 16;

std::uint64_t pack(ContextId id) {
  return std::uint64_t{id.allocator} << kAllocatorShift | std::uint64_t{id.slot} << kSlotShift | id.generation;
}

ContextId unpack(std::uint64_t value) {
  return {static_cast<std::uint32_t>(value >> kAllocatorShift), static_cast<std::uint16_t>(value >> kSlotShift),
          static_cast<std::uint16_t>(value)};
}

ContextId name_of(const Agreement& agreement, const Context& parent) {
  const ContextId id = unpack(agreement.values.front());
  const int first = agreement.survivors.front();
  if (id.allocator != static_cast<std::uint32_t>(parent.world_ranks[static_cast<std::size_t>(first)])) {
    throw Error(ErrorKind::bad_message, fmt::format("rank {} proposes an id in a shrink that is not its own", first))
        .at_rank(parent.rank)
        .with_peer(first);
  }
  return id;
}

// A member whose death this rank knows of already will not be reported again.
void tell_who_is_gone(Engine& engine, const AgreementState& parent, const Agreement& agreement,
                      const std::shared_ptr<Context>& context) {
  for (int rank = 0; rank < context->size(); ++rank) {
    const int in_parent = agreement.survivors[static_cast<std::size_t>(rank)];
    if (!parent.node.is_gone(in_parent)) continue;
    AgreementState& state = agreement_of(*context, engine);
    parent.node.is_doubted(in_parent) ? state.doubt(rank) : state.lose(rank);
    break_context(
        engine, context,
        Error(ErrorKind::peer_failed, fmt::format("rank {} of the communicator that was shrunk was lost while "
                                                  "the survivors agreed",
                                                  in_parent))
            .with_peer(rank));
  }
}

Task<> run_shrink(Operation& operation, Engine& engine, std::shared_ptr<Context> parent, AgreeOptions options,
                  std::shared_ptr<std::optional<std::shared_ptr<Context>>> result) {
  AgreementState& state = agreement_of(*parent, engine);
  if (!state.offered) state.offered.emplace(engine.contexts().shared_from_this());
  const std::uint64_t mine = pack(state.offered->id());
  Task<Agreement> agreeing = reach_agreement(operation, state, *parent, AgreementPurpose::shrink, mine, options);
  const Agreement agreement = co_await agreeing;
  const std::shared_ptr<Context> context = derive_context(*parent, name_of(agreement, *parent), agreement.survivors);
  context->epoch = agreement.epoch;
  context->id == state.offered->id() ? state.offered->use() : state.offered->give_back();
  state.offered.reset();
  engine.add_context(context);
  tell_who_is_gone(engine, state, agreement, context);
  *result = context;
}

}  // namespace

Request<Communicator> ishrink(Communicator& communicator, const AgreeOptions& options) {
  Engine& engine = *communicator.engine();
  const AgreeOptions complete = complete_options(*communicator.context(), options);
  break_communicator(
      communicator,
      Error(ErrorKind::broken, "the communicator is shrunk to those who are left").at_rank(communicator.rank()));
  const auto result = std::make_shared<std::optional<std::shared_ptr<Context>>>();
  auto operation = start_alone(engine, complete, [&](Operation& started) {
    return run_shrink(started, engine, communicator.context(), complete, result);
  });
  return {communicator.engine(), std::move(operation), result};
}

Communicator shrink(Communicator& communicator, const AgreeOptions& options) {
  return ishrink(communicator, options).wait();
}

}  // namespace tulle
