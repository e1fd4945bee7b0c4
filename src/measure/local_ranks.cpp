#include "measure/local_ranks.hpp"

#include <chrono>

namespace tulle::measure {
namespace {

double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

template <class Call>
TimedCall timed(Call call) {
  TimedCall result;
  const double start = steady_seconds();
  result.outcomes.push_back(call());
  result.seconds = steady_seconds() - start;
  return result;
}

}  // namespace

std::string_view OneRank::transport() const {
  const std::string name = communicator_.engine()->transport().name();
  for (const std::string_view known : {"threads", "tcp"}) {
    if (name == known) return known;
  }
  return "mpi";
}

TimedCall OneRank::run(std::span<const AnyStream> inputs, const CallOptions& options,
                       std::span<AlgorithmState> states) {
  AnyStream stream = inputs.front();
  return timed([&] { return allreduce(communicator_, stream, options, &states.front()); });
}

TimedCall OneRank::run(std::span<const Accumulator> inputs, const CallOptions& options,
                       std::span<AlgorithmState> states) {
  return timed([&] { return allreduce(communicator_, inputs.front(), options, &states.front()); });
}

std::vector<double> OneRank::agree(std::vector<double> values, const Op& op) {
  const CallOptions options{.algorithm = "dense_recursive_double", .op = op};
  AlgorithmState forgotten;
  AnyStream stream = Stream<double>::dense(values);
  allreduce(communicator_, stream, options, &forgotten);
  return Stream<double>(stream).to_vector(op);
}

TimedCall SimulatedRanks::run_ranks(std::size_t ranks,
                                    const std::function<Request<Outcome>(Communicator&, std::size_t rank)>& start) {
  TimedCall call;
  call.outcomes.resize(ranks);
  const Program program = [&](Communicator& communicator) -> Task<> {
    const auto rank = static_cast<std::size_t>(communicator.rank());
    auto request = start(communicator, rank);
    call.outcomes[rank] = co_await request;
  };
  SimWorld world(options_);
  world.run(program);
  call.seconds = world.elapsed_seconds();
  call.totals = world.totals();
  return call;
}

TimedCall SimulatedRanks::run(std::span<const AnyStream> inputs, const CallOptions& options,
                              std::span<AlgorithmState> states) {
  return run_ranks(inputs.size(), [&](Communicator& communicator, std::size_t rank) {
    return iallreduce(communicator, inputs[rank], options, &states[rank]);
  });
}

TimedCall SimulatedRanks::run(std::span<const Accumulator> inputs, const CallOptions& options,
                              std::span<AlgorithmState> states) {
  return run_ranks(inputs.size(), [&](Communicator& communicator, std::size_t rank) {
    return iallreduce(communicator, inputs[rank], options, &states[rank]);
  });
}

}  // namespace tulle::measure
