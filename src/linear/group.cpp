#include "linear/group.hpp"

#include <algorithm>

namespace tulle::linear {
namespace {

std::string text_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& thrown) {
    return thrown.what();
  }
}

}  // namespace

Group::Group(Communicator communicator, Waiting waiting) : communicator_(std::move(communicator)), waiting_(waiting) {}

void Group::charge(std::uint64_t pairs) {
  communicator_.engine()->transport().charge(communicator_.profile().gamma_sparse_seconds * static_cast<double>(pairs));
}

void Group::charge_dense(std::uint64_t values) {
  communicator_.engine()->transport().charge(communicator_.profile().gamma_dense_seconds * static_cast<double>(values));
}

void Group::progress() {
  if (waiting_ == Waiting::blocks && !pending_.empty()) communicator_.engine()->progress();
}

std::string Group::row_of(std::string_view aggregation, OperationKind kind) const {
  if (kind == OperationKind::allgather) {  // of blocks that are mostly holes: auto need not look
    if (aggregation == "dense") return "dense_allgather";
    if (aggregation == "sparse" || aggregation == kAuto) return "sparse_allgather";
  } else {
    const bool has_native = communicator_.engine()->transport().native_allreduce() != nullptr;
    if (aggregation == kAuto) return std::string(kAuto);
    if (aggregation == "dense") return has_native ? "mpi_native" : "dense_rabenseifner";
    if (aggregation == "sparse") return "ssar_split_allgather";
  }
  return std::string(find_algorithm(kind, aggregation).name);
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

Task<AnyStream> Group::sum(AnyStream stream, std::string_view row) {
  if (size() == 1) co_return stream;
  if (waiting_ == Waiting::awaits || !pending_.empty()) {
    start_sum(std::move(stream), row);
    AnyStream awaited = co_await finish_sum();
    co_return awaited;
  }
  const double started = now();
  const Outcome outcome = allreduce(communicator_, stream, {.algorithm = row}, &learned_);
  co_return count(outcome, started);
}

void Group::start_sum(AnyStream stream, std::string_view row) {
  // Ranks agree on what auto chooses only if they know the same; so each call starts from what ended in order.
  Pending& pending = pending_.emplace_back(Pending{learned_, std::nullopt});
  pending.request = iallreduce(communicator_, std::move(stream), {.algorithm = row}, &pending.state);
}

Task<AnyStream> Group::finish_sum() {
  const double started = now();
  Pending& oldest = pending_.front();
  std::optional<Outcome> outcome;
  if (waiting_ == Waiting::blocks) {
    outcome = oldest.request->wait();
  } else {
    outcome = co_await *oldest.request;
  }
  learned_ = oldest.state;
  pending_.pop_front();
  co_return count(*outcome, started);
}

Task<AnyStream> Group::gather(AnyStream block, std::string_view row) {
  if (size() == 1) co_return block;
  const double started = now();
  const CallOptions options{.algorithm = row};
  if (waiting_ == Waiting::blocks) {
    const Outcome outcome = allgather(communicator_, block, options);
    co_return count(outcome, started);
  }
  auto request = iallgather(communicator_, std::move(block), options);
  const Outcome outcome = co_await request;
  co_return count(outcome, started);
}

Task<std::vector<double>> Group::agree(std::vector<double> values, Op op) {
  if (size() == 1) co_return values;
  const CallOptions options{.algorithm = "dense_recursive_double", .op = op};
  AnyStream stream = Stream<double>::dense(values);
  if (waiting_ == Waiting::blocks) {
    AlgorithmState forgotten;
    allreduce(communicator_, stream, options, &forgotten);
    co_return Stream<double>(stream).to_vector(op);
  }
  auto request = iallreduce(communicator_, stream, options);
  const Outcome outcome = co_await request;
  co_return Stream<double>(outcome.stream).to_vector(op);
}

Task<> Group::fail_together(std::exception_ptr error) {
  const std::string text = error ? text_of(error) : "";
  const std::vector<double> mine{error ? rank() : static_cast<double>(size()), -static_cast<double>(text.size())};
  const std::vector<double> least = co_await agree(mine, Op::min());
  const int failed = static_cast<int>(least[0]);
  if (failed == size()) co_return;
  if (size() == 1) std::rethrow_exception(error);
  std::vector<double> letters(static_cast<std::size_t>(-least[1]));
  if (rank() == failed) std::copy(text.begin(), text.end(), letters.begin());
  letters = co_await agree(letters);
  std::string told;
  for (const double letter : letters) told += static_cast<char>(letter);
  told.resize(std::min(told.size(), told.find('\0')));
  throw Error(ErrorKind::bad_input, told);
}

Task<std::vector<double>> sum_over_ranks(Communicator communicator, Waiting waiting, std::vector<double> values) {
  Group group(std::move(communicator), waiting);
  std::vector<double> sums = co_await group.agree(std::move(values));
  co_return sums;
}

Task<double> most_over_ranks(Communicator communicator, Waiting waiting, double value) {
  Group group(std::move(communicator), waiting);
  const std::vector<double> mine{value};
  const std::vector<double> most = co_await group.agree(mine, Op::max());
  co_return most[0];
}

Task<> fail_together(Communicator communicator, Waiting waiting, std::exception_ptr error) {
  Group group(std::move(communicator), waiting);
  co_await group.fail_together(error);
}

}  // namespace tulle::linear
