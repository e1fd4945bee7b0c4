#include "collectives/checks.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "collectives/exchange.hpp"
#include "collectives/teams.hpp"
#include "select/share.hpp"
#include "tulle/codec/registry.hpp"

namespace tulle {

// Options as every row wants them.
void check_options(const Communicator& communicator, const Shape& shape, const CallOptions& options) {
  options.op.require_defined_on(shape.type);
  if (options.root < 0 || options.root >= communicator.size()) {
    throw Error(ErrorKind::bad_input,
                fmt::format("root {} is not a rank of a communicator of {}", options.root, communicator.size()));
  }
  if (options.density && !(*options.density >= 0 && *options.density <= 1)) {
    throw Error(ErrorKind::bad_input, fmt::format("density {} is not in [0, 1]", *options.density));
  }
  IndexChoice(options.index_coding, communicator.profile());  // knows the name, or throws
  validate(options.value_coding);
  if (codes_values(options) && (is_integer(shape.type) || options.op.code() != OpCode::sum)) {
    throw Error(ErrorKind::bad_input,
                fmt::format("{} codes values of sums of floats, not {} by {}", to_string(options.value_coding),
                            to_string(shape.type), options.op.name()));
  }
}

void check_stream(OperationKind kind, const AnyStream& stream) {
  if (stream.range() == Range{0, stream.dimension()} || kind == OperationKind::allgather) return;
  throw Error(ErrorKind::bad_input, fmt::format("{} takes a stream of the whole dimension, not the block [{}, {})",
                                                to_string(kind), stream.range().begin, stream.range().end));
}

void check_accumulator(const Communicator& communicator, const Accumulator& accumulator, const CallOptions& options) {
  if (accumulator.type() != compute_type(accumulator.type())) {
    throw Error(ErrorKind::bad_input,
                fmt::format("{} is too narrow for an accumulator; use f32", to_string(accumulator.type())));
  }
  if (options.op.code() != OpCode::sum) {
    throw Error(ErrorKind::bad_input, fmt::format("accumulators are summed, not reduced by {}", options.op.name()));
  }
  if (options.teams < 1 || communicator.size() % options.teams != 0) {
    throw Error(ErrorKind::bad_input,
                fmt::format("{} teams of equal size cannot be made of {} ranks", options.teams, communicator.size()));
  }
  check_team_gather(options);
}

void require_supported(const Algorithm& algorithm, const Communicator& communicator, const Shape& shape,
                       const CallOptions& options) {
  if (algorithm.takes != shape.takes) {
    throw Error(ErrorKind::unsupported, fmt::format("{} takes {}", algorithm.name,
                                                    algorithm.takes == Takes::stream ? "a stream, not an accumulator"
                                                                                     : "an accumulator, not a stream"));
  }
  if (codes_values(options) && !algorithm.codes_values) {
    throw Error(ErrorKind::unsupported, fmt::format("{} sends values as they are and cannot use {}", algorithm.name,
                                                    to_string(options.value_coding)));
  }
  if (algorithm.dense_result && shape.dimension >= kDenseDimensionLimit) {
    throw Error(ErrorKind::unsupported,
                fmt::format("{} makes a dense vector and refuses 2^32 values or more (N = {}); use a sparse algorithm",
                            algorithm.name, shape.dimension));
  }
  if (algorithm.needs != Needs::native_allreduce) return;
  const bool is_world = communicator.context() == communicator.engine()->world() && communicator.channel_number() == 0;
  if (!is_world || communicator.engine()->transport().native_allreduce() == nullptr) {
    throw Error(ErrorKind::unsupported, fmt::format("{} needs a transport with an allreduce of its own, which MPI is, "
                                                    "and a communicator of all its ranks that is no channel",
                                                    algorithm.name));
  }
  if (options.op.code() == OpCode::user) {
    throw Error(ErrorKind::unsupported, fmt::format("{} cannot run a user op; use another algorithm", algorithm.name));
  }
}

CallOptions with_k(CallOptions options, std::uint64_t dimension) {
  if (options.k == 0 && !options.density) {
    throw Error(ErrorKind::bad_input, "an accumulator needs k or density: how much to deliver");
  }
  if (options.k == 0) options.k = values_of_share(*options.density, dimension);
  options.k = std::min(std::max<std::uint64_t>(options.k, 1), dimension);
  return options;
}

CallOptions with_lasting_names(CallOptions options, std::string_view algorithm) {
  options.algorithm = algorithm;
  const auto lasting = [](std::string_view name, auto... known) {
    std::string_view found = kAuto;
    ((name == known ? void(found = known) : void()), ...);
    return found;
  };
  if (options.index_coding != kAuto && options.index_coding != kSmallest) {
    const auto is_named = [&](const IndexCodec& row) { return to_string(row.coding) == options.index_coding; };
    options.index_coding = to_string(std::ranges::find_if(index_codecs(), is_named)->coding);
  } else {
    options.index_coding = lasting(options.index_coding, kSmallest);
  }
  options.team_gather = lasting(options.team_gather, std::string_view("r_sag"), std::string_view("b_sag"));
  return options;
}

}  // namespace tulle
