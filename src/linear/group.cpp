#include "linear/group.hpp"

#include <algorithm>

namespace tulle::linear {

void Group::charge(std::uint64_t pairs) {
  communicator_.engine()->transport().charge(communicator_.profile().gamma_sparse_seconds * static_cast<double>(pairs));
}

void Group::charge_dense(std::uint64_t values) {
  communicator_.engine()->transport().charge(communicator_.profile().gamma_dense_seconds * static_cast<double>(values));
}

std::string Group::row_of(std::string_view aggregation, OperationKind kind) const {
  if (kind == OperationKind::allgather) {  // of blocks that are mostly holes: auto need not look
    if (aggregation == "dense") return "dense_allgather";
    if (aggregation == "sparse" || aggregation == kAuto) return "sparse_allgather";
  } else {
    const bool has_native = communicator_.engine()->transport().native_allreduce() != nullptr;
    if (aggregation == kAuto) return std::string(kAuto);
    if (aggregation == "dense") return has_native ? "mpi_native" : std::string(kAutoDense);
    if (aggregation == "sparse") return std::string(kAutoSparse);
  }
  return std::string(find_algorithm(kind, aggregation).name);
}

std::uint64_t Group::ranks_of_node() const {
  const auto nodes = communicator_.nodes();
  return static_cast<std::uint64_t>(std::ranges::count(nodes, nodes[static_cast<std::size_t>(rank())]));
}

AnyStream Group::count(const Outcome& outcome, double started) {
  stats_.seconds += now() - started;
  stats_.calls += 1;
  stats_.bytes += static_cast<double>(outcome.counts.bytes_sent);
  if (outcome.algorithm == "mpi_native") {
    const double ranks = size();
    stats_.bytes += 2 * (ranks - 1) / ranks * static_cast<double>(outcome.stream.bytes());
    stats_.has_estimated_bytes = true;
  }
  return outcome.stream;
}

Task<> Group::expect(const AnyStream& stream) {
  Learned& learned = learned_[stream.dimension()];
  if (learned.density || size() == 1 || stream.dimension() == 0) co_return;
  std::vector<double> values{static_cast<double>(stream.nnz())};
  const std::vector<double> all = co_await agree(std::move(values));
  learned.density = all[0] / size() / static_cast<double>(stream.dimension());
}

Task<AnyStream> Group::sum(AnyStream stream, std::string_view row) {
  if (size() == 1) co_return stream;
  start(std::move(stream), {.algorithm = row, .awaited_at_once = pending_.empty()});
  AnyStream total = co_await finish_oldest();
  co_return total;
}

void Group::start_sum(AnyStream stream, std::string_view row) { start(std::move(stream), {.algorithm = row}); }

// Ranks agree on what auto chooses only if they know the same; so each call starts from what ended in order.
void Group::start(AnyStream stream, CallOptions options) {
  const Learned& learned = learned_[stream.dimension()];
  if (learned.state.calls == 0) options.density = learned.density;
  Pending& pending = pending_.emplace_back(Pending{stream.dimension(), learned.state, {}});
  pending.request = iallreduce(communicator_, std::move(stream), options, &pending.state);
}

void Group::start_gather(AnyStream block, std::string_view row) {
  Pending& pending = pending_.emplace_back(Pending{block.dimension(), {}, {}});
  pending.request = iallgather(communicator_, std::move(block), {.algorithm = row});
}

Task<AnyStream> Group::finish_oldest() {
  const double started = now();
  Pending& oldest = pending_.front();
  const Outcome outcome = co_await oldest.request;
  if (oldest.state.calls > 0) learned_[oldest.dimension].state = oldest.state;
  pending_.pop_front();
  co_return count(outcome, started);
}

Task<AnyStream> Group::gather(AnyStream block, std::string_view row) {
  if (size() == 1) co_return block;
  const double started = now();
  const CallOptions options{.algorithm = row, .awaited_at_once = true};
  auto request = iallgather(communicator_, std::move(block), options);
  const Outcome outcome = co_await request;
  co_return count(outcome, started);
}

Task<std::vector<double>> Group::agree(std::vector<double> values, Op op) {
  if (size() == 1) co_return values;
  const CallOptions options{.algorithm = "dense_recursive_double", .op = op, .awaited_at_once = true};
  const AnyStream stream = Stream<double>::dense(values);
  auto request = iallreduce(communicator_, stream, options);
  const Outcome outcome = co_await request;
  co_return Stream<double>(outcome.stream).to_vector(op);
}

Task<> Group::require_same(std::vector<Setting> settings) {
  auto request = irequire_same_settings(communicator_, settings);
  co_await request;
}

Task<> Group::fail_together(std::exception_ptr error) {
  auto request = ifail_together(communicator_, error);
  co_await request;
}

}  // namespace tulle::linear
