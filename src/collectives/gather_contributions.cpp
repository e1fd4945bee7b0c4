// gather_contributions: everyone's coded stream to everyone, each by itself.
//
// How it works. A rank codes its *contribution* once and goes on with what it decodes itself, as all others do. The
// frames travel as every gather's do (gather.hpp): small ones in ⌈log2 P⌉ rounds, large ones around a ring, forwarded
// as they came and decoded where they end. Norms are computed from what was decoded, in an order that no processor
// changes.
//
//   depth     ⌈log2 P⌉, and P − 2 more where a contribution is large
//   messages  ⌈log2 P⌉ per rank, and as many as there are large contributions of others
//   data      k·(P−1) coded pairs through each port

#include "tulle/collectives/gather_contributions.hpp"

#include <fmt/format.h>

#include "collectives/checks.hpp"
#include "collectives/cost.hpp"
#include "collectives/fingerprint.hpp"
#include "collectives/gather.hpp"

namespace tulle {
namespace {

// A block would pass for a contribution in which the rest was not sent.
void require_whole(const AnyStream& stream, int from) {
  const Range range = stream.range();
  if (range == Range{0, stream.dimension()}) return;
  reject_message(from, fmt::format("frame field 'range': is [{}, {}), expected [0, {})", range.begin, range.end,
                                   stream.dimension()));
}

Contribution contribution_of(Operation& operation, AnyStream stream, Norms norms) {
  if (norms == Norms::left_out) return {std::move(stream)};
  operation.charge({.dense_items = stream.nnz()});
  const double norm = l2_norm(stream);
  return {std::move(stream), norm};
}

// What is kept must not be the caller's memory. A value coding copies by itself.
AnyStream to_send(const AnyStream& stream, const CallOptions& options) {
  const AnyStream computed = convert(stream, compute_type(stream.type()));
  return codes_values(options) ? computed : computed.to_owned();
}

/// What a call is made for, beside its options.
struct Purpose {
  Norms norms = Norms::computed;
  CodingLoss loss = CodingLoss::dropped;
};

Task<> run_gather(Operation& operation, AnyStream stream, CallOptions options, Purpose purpose,
                  std::shared_ptr<std::optional<Contributions>> result) {
  stream = to_send(stream, options);
  Exchange exchange(operation, stream, options);
  if (purpose.loss == CodingLoss::kept) exchange.keep_what_coding_loses();
  Part mine = exchange.with_coded_values(Exchange::contribution(stream), 0);
  stream = {};
  PoolVector<Part> parts = co_await gather_parts(exchange, std::move(mine), 0);
  Contributions contributions;
  contributions.by_rank.reserve(parts.size());
  for (std::size_t rank = 0; rank < parts.size(); ++rank) {
    require_whole(parts[rank].stream, static_cast<int>(rank));
    contributions.by_rank.push_back(contribution_of(operation, std::move(parts[rank].stream), purpose.norms));
  }
  contributions.counts = operation.counts();
  *result = std::move(contributions);
}

void check(const Communicator& communicator, const AnyStream& stream, const CallOptions& options) {
  check_options(communicator, shape_of(stream), options);
  check_stream(OperationKind::gather_contributions, stream);
  if (options.algorithm != kAuto) {
    throw Error(ErrorKind::bad_input, fmt::format("contributions are gathered in one way, not by '{}'; leave it {}",
                                                  options.algorithm, kAuto));
  }
  if (options.op.code() != OpCode::sum) {
    throw Error(ErrorKind::bad_input,
                fmt::format("contributions are gathered and not reduced by {}; leave it sum", options.op.name()));
  }
}

Request<Contributions> start(Communicator& communicator, AnyStream stream, const CallOptions& given, Purpose purpose,
                             Pace pace) {
  if (pace == Pace::blocking) communicator.engine()->require_outside_of_coroutines();
  check(communicator, stream, given);
  const CallOptions options = with_lasting_names(given, kAuto);
  const OperationSettings settings{.signature = signature_of(OperationKind::gather_contributions, shape_of(stream),
                                                             options, *communicator.context()),
                                   .deadline_seconds = options.deadline_seconds,
                                   .checksum = options.checksum,
                                   .is_blocking = pace == Pace::blocking || options.awaited_at_once,
                                   .borrows = borrows(stream)};
  const auto result = std::allocate_shared<std::optional<Contributions>>(PoolAllocator<std::optional<Contributions>>());
  auto operation = communicator.start(
      settings, [&](Operation& started) { return run_gather(started, std::move(stream), options, purpose, result); });
  return {communicator.engine(), std::move(operation), result};
}

}  // namespace

Contributions gather_contributions(Communicator& communicator, AnyStream stream, const CallOptions& options) {
  return start(communicator, std::move(stream), options, {}, Pace::blocking).wait();
}

Request<Contributions> igather_contributions(Communicator& communicator, AnyStream stream, const CallOptions& options,
                                             Norms norms, CodingLoss loss) {
  return start(communicator, std::move(stream), options, {norms, loss}, Pace::non_blocking);
}

double gather_contributions_seconds(const CostInput& input) {
  CostInput coded = input;
  coded.value_bytes = input.coded_value_bytes;
  const double one_end = input.coding_seconds(input.nnz, input.dimension) / 2 + value_coding_seconds(input, input.nnz);
  const double norms = input.ranks * input.nnz * input.profile.gamma_dense_seconds;
  return one_end + norms + gather_seconds(input, coded.contribution_bytes(input.nnz, input.dimension), one_end);
}

}  // namespace tulle
