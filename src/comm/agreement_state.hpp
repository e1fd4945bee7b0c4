// The agreements of a context on this rank: the state machine, tied to the engine.
//
// Threads: the driver's. Where a rank's call waits, it is an operation of this rank alone, on a context of its own that
// nobody else can break: so it has a request and is resumed like all others.
#pragma once

#include <memory>
#include <optional>
#include <span>

#include "comm/agreement.hpp"
#include "comm/derive_context.hpp"
#include "tulle/comm/agree.hpp"

namespace tulle {

struct AgreementState {
  AgreementState(const Context& context, Engine& engine);
  AgreementState(const AgreementState&) = delete;
  AgreementState& operator=(const AgreementState&) = delete;

  /// Throws bad_message.
  void take(int from, std::span<const Buffer> segments);
  void lose(int peer);
  void doubt(int peer);

  Engine& engine;
  const int size;
  AgreementNode node;
  /// What this rank would name the shrunk communicator by. The same at every try, because a try that failed here may
  /// have come to an end elsewhere.
  std::optional<ReservedId> offered;
};

/// The context's, made where there is none yet.
AgreementState& agreement_of(Context& context, Engine& engine);

/// Which function ranks call. Numbers travel: never renumber.
enum class AgreementPurpose : std::uint8_t { agree = 0, shrink = 1 };

/// Joins the context's next agreement and waits for its end. Throws excluded, mismatch and bad_input as agree() says.
Task<Agreement> reach_agreement(Operation& operation, AgreementState& state, const Context& context,
                                AgreementPurpose purpose, std::uint64_t value, AgreeOptions options);

/// A context whose only member is this rank, known to the engine.
std::shared_ptr<Context> context_of_one(Engine& engine);
/// The options with what the communicator says in the place of zeros. Throws bad_input for what is negative or no
/// number.
AgreeOptions complete_options(const Context& context, const AgreeOptions& options);
/// How a call waits. Its deadline is later than that of the agreement, which has more to say.
OperationSettings settings_of_agreement(const AgreeOptions& options);

/// Starts an operation of this rank alone.
template <class MakeTask>
std::shared_ptr<Operation> start_alone(Engine& engine, const AgreeOptions& options, MakeTask make_task) {
  const std::shared_ptr<Context> alone = context_of_one(engine);
  return engine.start(alone, engine.channel_of(*alone, 0), settings_of_agreement(options), std::move(make_task));
}

}  // namespace tulle
