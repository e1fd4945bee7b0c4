// What can be told before anything is sent, and so without breaking the communicator.
#pragma once

#include "collectives/shape.hpp"
#include "tulle/comm/communicator.hpp"

namespace tulle {

/// Options as every row wants them. Throws bad_input.
void check_options(const Communicator& communicator, const Shape& shape, const CallOptions& options);
void check_stream(OperationKind kind, const AnyStream& stream);
void check_accumulator(const Communicator& communicator, const Accumulator& accumulator, const CallOptions& options);
/// Throws unsupported where the row cannot do what is asked for. It depends on what is equal on all ranks alone.
void require_supported(const Algorithm& algorithm, const Communicator& communicator, const Shape& shape,
                       const CallOptions& options);

/// k and density say the same; rows read k.
CallOptions with_k(CallOptions options, std::uint64_t dimension);
/// The same options for `algorithm`, with names that live as long as the program. REQUIRES: check_options() has passed,
/// and the name of the algorithm lives so long.
CallOptions with_lasting_names(CallOptions options, std::string_view algorithm);

}  // namespace tulle
