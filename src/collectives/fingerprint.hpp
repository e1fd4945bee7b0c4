// What ranks must agree on before they exchange data.
#pragma once

#include "collectives/shape.hpp"
#include "tulle/comm/context.hpp"

namespace tulle {

/// Whether the caller waits for a call, awaits it and does nothing else, or goes on.
enum class Pace { blocking, awaited, non_blocking };

CallSignature signature_of(const Algorithm& algorithm, const Shape& shape, const CallOptions& options,
                           const Context& context, const AlgorithmState* state, Pace pace);

/// The same of a kind that has no rows.
CallSignature signature_of(OperationKind kind, const Shape& shape, const CallOptions& options, const Context& context);

}  // namespace tulle
