#include "tulle/comm/agree.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "comm/agreement_state.hpp"

namespace tulle {
namespace {

// A sixteenth of the patience is the time between two looks at what has come. Of less than this no answer arrives in
// time.
constexpr double kLeastPatience = 1e-4;

// Engines and contexts outlive what the state machine says: both are there while the driver runs.
AgreementNode::Send sender(const Context& context, Engine& engine) {
  return [&context, &engine](int to, const AgreementMessage& said) {
    MessageHeader header;
    header.kind = MessageKind::datagram;
    header.context = context.id;
    header.epoch = context.epoch;
    header.channel = kAgreementPort;
    Segments segments = encode_agreement_message(said);
    Message message{encode_message_head(header, segments), std::move(segments), nullptr, 0};
    engine.send(context.world_ranks[static_cast<std::size_t>(to)], std::move(message));
  };
}

// Ranks that call different things, or count differently, must not take part in one decision.
std::uint8_t number_of(AgreementPurpose purpose, Quorum quorum) {
  return static_cast<std::uint8_t>(static_cast<unsigned>(purpose) | static_cast<unsigned>(quorum) << 1);
}
std::string describe_call(std::uint8_t number) {
  return fmt::format("{} with Quorum::{}", (number & 1) != 0 ? "shrink" : "agree",
                     (number & 2) != 0 ? "any" : "majority");
}

// This rank's presence in an agreement, which ends with its call.
class Presence {
 public:
  Presence(AgreementNode& node, const AgreementNode::Call& call, double now) : node_(node) { node_.join(call, now); }
  ~Presence() { node_.leave(); }
  Presence(const Presence&) = delete;
  Presence& operator=(const Presence&) = delete;

 private:
  AgreementNode& node_;
};

std::vector<int> survivors_of(const Proposal& decision) {
  std::vector<int> ranks;
  for (const Survivor& survivor : decision.survivors) ranks.push_back(static_cast<int>(survivor.rank));
  return ranks;
}

// What is decided about this rank's call. REQUIRES: there is a decision.
Agreement take_decision(AgreementNode& node, const Context& context, std::uint8_t call) {
  const Proposal decision = *node.decision();
  const std::uint32_t number = node.number_of_call();
  node.go_on();
  if (decision.call != call) {
    throw Error(ErrorKind::mismatch, fmt::format("ranks disagree on agreement {}: this one calls {}, the others {}",
                                                 number, describe_call(call), describe_call(decision.call)));
  }
  Agreement agreement{
      .epoch = static_cast<std::uint16_t>(context.epoch + number), .survivors = survivors_of(decision), .values = {}};
  if (!decision.has(context.rank)) {
    throw Error(ErrorKind::excluded,
                fmt::format("the survivors of agreement {} are ranks {}: this one came too late or was taken for dead",
                            number, fmt::join(agreement.survivors, ", ")));
  }
  for (const Survivor& survivor : decision.survivors) agreement.values.push_back(survivor.value);
  return agreement;
}

bool is_over(const AgreementNode& node) { return node.decision() != nullptr || node.is_lost() || node.is_hopeless(); }

[[noreturn]] void throw_undecided(const AgreementNode& node, const AgreeOptions& options) {
  if (node.is_lost()) {
    throw Error(ErrorKind::excluded,
                fmt::format("agreement {}: the others have gone on without this rank", node.number_of_call()));
  }
  if (node.is_hopeless() && options.quorum == Quorum::any) {
    throw Error(ErrorKind::excluded, fmt::format("agreement {}: {}, and Quorum::any takes none but the dead for gone",
                                                 node.number_of_call(), node.describe_doubted()));
  }
  if (node.is_hopeless()) {
    throw Error(ErrorKind::excluded,
                fmt::format("{}: with Quorum::any it would go on, at the risk that others do so too",
                            node.describe_members_left()));
  }
  throw Error(ErrorKind::excluded, fmt::format("agreement {} was not reached within {} s: {}", node.number_of_call(),
                                               options.deadline_seconds, node.describe_waiting()));
}

Task<> run_agreement(Operation& operation, Engine& engine, std::shared_ptr<Context> context, std::uint64_t value,
                     AgreeOptions options, std::shared_ptr<std::optional<Agreement>> result) {
  AgreementState& state = agreement_of(*context, engine);
  Task<Agreement> agreeing = reach_agreement(operation, state, *context, AgreementPurpose::agree, value, options);
  *result = co_await agreeing;
}

}  // namespace

AgreementState::AgreementState(const Context& context, Engine& its_engine)
    : engine(its_engine), size(context.size()), node(context.rank, context.size(), sender(context, its_engine)) {}

void AgreementState::take(int from, std::span<const Buffer> segments) {
  node.take(from, decode_agreement_message(segments, size), engine.transport().now());
}

void AgreementState::lose(int peer) { node.lose(peer, engine.transport().now()); }
void AgreementState::doubt(int peer) { node.doubt(peer, engine.transport().now()); }

AgreementState& agreement_of(Context& context, Engine& engine) {
  if (!context.agreement) context.agreement = std::make_shared<AgreementState>(context, engine);
  return *context.agreement;
}

Task<Agreement> reach_agreement(Operation& operation, AgreementState& state, const Context& context,
                                AgreementPurpose purpose, std::uint64_t value, AgreeOptions options) {
  AgreementNode& node = state.node;
  Transport& transport = state.engine.transport();
  const std::uint8_t call = number_of(purpose, options.quorum);
  if (node.is_in_call()) {
    throw Error(ErrorKind::bad_input, "another agreement of this communicator is under way").at_rank(context.rank);
  }
  const double end = transport.now() + options.deadline_seconds;
  try {
    const Presence presence(node, {call, value, options.quorum, options.patience_seconds}, transport.now());
    while (!is_over(node) && transport.now() < end) {
      const double wake = std::min(end, node.next_tick());
      auto until = operation.poll_until([&node, &transport, wake] {
        if (is_over(node) || transport.now() >= wake) return true;
        transport.set_timer(wake);  // each time: a simulation keeps the earliest alone
        return false;
      });
      co_await until;
      if (!is_over(node)) node.tick(transport.now());
    }
    if (node.decision() == nullptr) throw_undecided(node, options);
    co_return take_decision(node, context, call);
  } catch (const Error& error) {
    throw error.at_rank(context.rank);
  }
}

std::shared_ptr<Context> context_of_one(Engine& engine) {
  const Context& world = *engine.world();
  ContextTable& table = engine.contexts();
  auto context = std::make_shared<Context>();
  context->id = table.reserve();
  context->table = table.weak_from_this();
  context->world_ranks = {world.rank};
  context->rank_of_world.assign(world.rank_of_world.size(), -1);
  context->rank_of_world[static_cast<std::size_t>(world.rank)] = 0;
  context->set_nodes({0});
  table.add(context);
  return context;
}

AgreeOptions complete_options(const Context& context, const AgreeOptions& options) {
  constexpr double kPatiencesPerDeadline = 8;
  AgreeOptions complete = options;
  if (complete.deadline_seconds == 0) complete.deadline_seconds = context.default_deadline_seconds;
  if (complete.patience_seconds == 0) complete.patience_seconds = complete.deadline_seconds / kPatiencesPerDeadline;
  // Not of NaN, nor of a deadline without an end, which has no eighth.
  const bool is_patient = complete.patience_seconds >= kLeastPatience && std::isfinite(complete.patience_seconds);
  if (complete.deadline_seconds > 0 && is_patient) return complete;
  throw Error(ErrorKind::bad_input,
              fmt::format("an agreement with a deadline of {} s and a patience of {} s, which is to be from {} s on",
                          complete.deadline_seconds, complete.patience_seconds, kLeastPatience))
      .at_rank(context.rank);
}

OperationSettings settings_of_agreement(const AgreeOptions& options) {
  OperationSettings settings;
  settings.signature.kind = OperationKind::agree;
  settings.deadline_seconds = 2 * options.deadline_seconds + 1;
  return settings;
}

Request<Agreement> iagree(Communicator& communicator, std::uint64_t value, const AgreeOptions& options) {
  Engine& engine = *communicator.engine();
  const AgreeOptions complete = complete_options(*communicator.context(), options);
  const auto result = std::make_shared<std::optional<Agreement>>();
  auto operation = start_alone(engine, complete, [&](Operation& started) {
    return run_agreement(started, engine, communicator.context(), value, complete, result);
  });
  return {communicator.engine(), std::move(operation), result};
}

Agreement agree(Communicator& communicator, std::uint64_t value, const AgreeOptions& options) {
  return iagree(communicator, value, options).wait();
}

}  // namespace tulle
