#include "cli/track.hpp"

#include <chrono>

namespace tulle::cli {
namespace {

// Agreement waits for the rank that makes the serial sum, however small the deadline of the measured calls is.
constexpr double kAgreementDeadlineSeconds = 3600;

double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

template <class Call>
Lap timed(Call call) {
  Lap lap;
  const double start = steady_seconds();
  lap.outcomes.push_back(call());
  lap.seconds = steady_seconds() - start;
  return lap;
}

}  // namespace

std::string_view RankTrack::transport() const {
  return communicator_.engine()->transport().name() == "threads" ? "threads" : "mpi";
}

Lap RankTrack::run(std::span<const AnyStream> inputs, const CallOptions& options, std::span<AlgorithmState> states) {
  AnyStream stream = inputs.front();
  return timed([&] { return allreduce(communicator_, stream, options, &states.front()); });
}

Lap RankTrack::run(std::span<const Accumulator> inputs, const CallOptions& options, std::span<AlgorithmState> states) {
  return timed([&] { return allreduce(communicator_, inputs.front(), options, &states.front()); });
}

std::vector<double> RankTrack::agree(std::vector<double> values, const Op& op) {
  const CallOptions options{
      .algorithm = "dense_recursive_double", .op = op, .deadline_seconds = kAgreementDeadlineSeconds};
  AlgorithmState forgotten;
  AnyStream stream = Stream<double>::dense(values);
  allreduce(communicator_, stream, options, &forgotten);
  return Stream<double>(stream).to_vector(op);
}

Lap SimTrack::run_ranks(std::size_t ranks,
                        const std::function<Request<Outcome>(Communicator&, std::size_t rank)>& start) {
  Lap lap;
  lap.outcomes.resize(ranks);
  const Program program = [&](Communicator& communicator) -> Task<> {
    const auto rank = static_cast<std::size_t>(communicator.rank());
    auto request = start(communicator, rank);
    lap.outcomes[rank] = co_await request;
  };
  SimWorld world(options_);
  world.run(program);
  lap.seconds = world.elapsed_seconds();
  lap.totals = world.totals();
  return lap;
}

Lap SimTrack::run(std::span<const AnyStream> inputs, const CallOptions& options, std::span<AlgorithmState> states) {
  return run_ranks(inputs.size(), [&](Communicator& communicator, std::size_t rank) {
    return iallreduce(communicator, inputs[rank], options, &states[rank]);
  });
}

Lap SimTrack::run(std::span<const Accumulator> inputs, const CallOptions& options, std::span<AlgorithmState> states) {
  return run_ranks(inputs.size(), [&](Communicator& communicator, std::size_t rank) {
    return iallreduce(communicator, inputs[rank], options, &states[rank]);
  });
}

}  // namespace tulle::cli
