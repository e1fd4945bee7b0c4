#include "collectives/fingerprint.hpp"

#include <bit>
#include <span>

#include "tulle/base/crc32c.hpp"

namespace tulle {
namespace {

std::string_view name_of_algorithm(std::uint8_t number) {
  if (number == 0) return kAuto;  // ranks that are to agree on a row
  return number >= 1 && number <= registry().size() ? registry()[number - 1].name : "unknown";
}

// What ranks must agree on and no field of the fingerprint has room for.
std::uint32_t hash_of(const CallOptions& options, const Shape& shape, const Context& context,
                      const AlgorithmState* state) {
  const auto crc_of = [](std::string_view text) { return crc32c(std::as_bytes(std::span(text))); };
  const ValueCodec& codec = options.value_coding;
  const bool draws = codes_values(options);
  const bool takes_turns = shape.takes == Takes::accumulator;  // blocks that get one value more
  const std::uint64_t numbers[] = {static_cast<std::uint64_t>(options.root),
                                   options.op.user_op() != nullptr ? crc_of(options.op.name()) : 0u,
                                   crc_of(options.index_coding),
                                   static_cast<std::uint64_t>(codec.coding),
                                   static_cast<std::uint64_t>(codec.bits),
                                   codec.bucket,
                                   static_cast<std::uint64_t>(codec.norm),
                                   std::bit_cast<std::uint64_t>(codec.sparsity),
                                   codec.zero_runs,
                                   std::bit_cast<std::uint64_t>(codec.sigma),
                                   static_cast<std::uint64_t>(options.coded_values),
                                   options.k,
                                   static_cast<std::uint64_t>(options.residual),
                                   static_cast<std::uint64_t>(options.teams),
                                   crc_of(options.team_gather),
                                   options.threshold_period,
                                   options.region_period,
                                   draws ? options.seed : 0,  // teams that hold the same values round alike
                                   draws || takes_turns ? options.step.value_or(0) : 0,
                                   options.step.has_value(),
                                   takes_turns && state != nullptr ? state->fingerprint() : 0,
                                   context.profile_crc,  // who relays a block decides by it
                                   context.nodes_crc};
  return crc32c(std::as_bytes(std::span(numbers)));
}

}  // namespace

CallSignature signature_of(OperationKind kind, const Shape& shape, const CallOptions& options, const Context& context) {
  CallSignature signature;
  signature.kind = kind;
  signature.type = shape.type;
  signature.op = options.op.code();
  signature.dimension = shape.dimension;
  signature.options_hash = hash_of(options, shape, context, nullptr);
  signature.name_of_algorithm = name_of_algorithm;
  signature.algorithm_name = kAuto;
  return signature;
}

CallSignature signature_of(const Algorithm& algorithm, const Shape& shape, const CallOptions& options,
                           const Context& context, const AlgorithmState* state, Pace pace) {
  CallSignature signature = signature_of(algorithm.kind, shape, options, context);
  signature.algorithm = algorithm_number(algorithm);
  const bool native_blocks =
      algorithm.needs == Needs::native_allreduce && pace != Pace::non_blocking;  // to MPI, another call
  signature.options_hash = hash_of(options, shape, context, state) ^ (native_blocks ? 0x85EBCA6Bu : 0u);
  signature.algorithm_name = algorithm.name;
  return signature;
}

}  // namespace tulle
