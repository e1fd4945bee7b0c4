// What every row of the registry owes on a real transport: the bytes of the simulator, blocking and non-blocking. Each
// function is one rank's part; its transport's suite calls it on all ranks.
#pragma once

#include <numeric>

#include "collectives/accumulators.hpp"
#include "tulle/collectives/gather_contributions.hpp"

namespace tulle::testing {

inline SyntheticSpec spec_for(std::uint64_t dimension, std::uint64_t nnz, std::uint64_t seed) {
  return {.dimension = dimension, .nnz = nnz, .values = SyntheticValues::gaussian_like, .seed = seed};
}

inline std::vector<std::pair<std::uint64_t, std::uint64_t>> sizes_of_streams(int ranks) {
  const auto p = static_cast<std::uint64_t>(ranks);
  return {{0, 0}, {1, 1}, {p - 1, 1}, {p, p}, {4097, 0}, {4097, 41}, {100003, 100}, {100003, 30001}, {100003, 100003}};
}

/// Simulated ranks are on nodes of their own, and what becomes dense depends on the profile.
inline void place_as_simulated(Communicator& communicator, const Profile& profile) {
  std::vector<int> nodes(static_cast<std::size_t>(communicator.size()));
  std::iota(nodes.begin(), nodes.end(), 0);
  communicator.set_nodes(nodes);
  communicator.set_profile(profile);
}

inline void expect_bytes_of_simulator(Communicator& communicator, const Profile& profile) {
  place_as_simulated(communicator, profile);
  const auto me = static_cast<std::size_t>(communicator.rank());
  for (const auto& [dimension, nnz] : sizes_of_streams(communicator.size())) {
    const auto inputs = make_inputs(communicator.size(), spec_for(dimension, nnz, 5));
    for (const Algorithm* row : rows_on_messages()) {
      SCOPED_TRACE(::testing::Message() << row->name << ", N = " << dimension << ", nnz = " << nnz);
      const CallOptions options{.algorithm = row->name, .root = communicator.size() - 1};
      const SimRun simulated = run_in_simulation(row->kind, inputs, options, {.profile = profile});
      expect_no_errors(simulated.errors);
      const Outcome outcome = start_collective(row->kind, communicator, inputs[me], options).wait();
      ASSERT_TRUE(outcome.stream == simulated.outcomes[me].stream);
      ASSERT_EQ(outcome.counts.messages_sent, simulated.outcomes[me].counts.messages_sent);
    }
  }
}

inline Contributions contributions_in_simulation(const std::vector<AnyStream>& inputs, const CallOptions& options,
                                                 const Profile& profile) {
  Contributions seen;
  SimWorld world({.ranks = static_cast<int>(inputs.size()), .profile = profile});
  world.run([&](Communicator& communicator) -> Task<> {
    auto request = igather_contributions(communicator, inputs[static_cast<std::size_t>(communicator.rank())], options);
    seen = co_await request;
  });
  return seen;
}

inline void expect_contributions_of_simulator(Communicator& communicator, const Profile& profile) {
  place_as_simulated(communicator, profile);
  const auto me = static_cast<std::size_t>(communicator.rank());
  for (const auto& [dimension, nnz] : sizes_of_streams(communicator.size())) {
    for (const std::string_view codec : {"raw", "three_value_stochastic", "codebook"}) {
      SCOPED_TRACE(::testing::Message() << codec << ", N = " << dimension << ", nnz = " << nnz);
      const auto inputs = make_inputs(communicator.size(), spec_for(dimension, nnz, 6));
      const CallOptions options{.value_coding = parse_value_codec(codec), .step = 1};
      const Contributions simulated = contributions_in_simulation(inputs, options, profile);
      const Contributions got = gather_contributions(communicator, inputs[me], options);
      for (std::size_t rank = 0; rank < inputs.size(); ++rank) {
        ASSERT_TRUE(got.by_rank[rank].stream == simulated.by_rank[rank].stream);
        ASSERT_EQ(got.by_rank[rank].norm, simulated.by_rank[rank].norm);
      }
    }
  }
}

/// Where blocks are large, they go around the ring.
inline constexpr Profile kSlowPerByte{.alpha_seconds = 1e-9, .beta_seconds_per_byte = 1e-6};

inline void expect_bytes_of_simulator_on_accumulators(Communicator& communicator) {
  const auto me = static_cast<std::size_t>(communicator.rank());
  for (const std::uint64_t k : {std::uint64_t{1}, std::uint64_t{50}, std::uint64_t{3000}}) {
    for (const Algorithm* row : rows_on_accumulators()) {
      SCOPED_TRACE(::testing::Message() << row->name << ", k = " << k);
      const CallOptions options{.algorithm = row->name, .index_coding = kSmallest, .k = k, .step = 3};
      auto simulated = make_accumulators<float>(communicator.size(), 20000);
      std::vector<float> mine = simulated[me];
      const SimRun run = reduce_accumulators(row->kind, simulated, options);
      expect_no_errors(run.errors);
      const Outcome outcome =
          start_collective(row->kind, communicator, Accumulator(std::span<float>(mine)), options).wait();
      ASSERT_TRUE(outcome.stream == run.outcomes[me].stream);
      ASSERT_EQ(mine, simulated[me]);
    }
  }
}

inline void expect_bytes_of_simulator_with_codings(Communicator& communicator) {
  const auto me = static_cast<std::size_t>(communicator.rank());
  const auto inputs = make_inputs(communicator.size(), spec_for(200000, 60000, 5));
  for (const std::string_view row : {"ssar_split_allgather", "dsar_split_allgather"}) {
    for (const char* const values : {"raw", "qsgd:bits=4", "three_lc:s=1.5"}) {
      SCOPED_TRACE(::testing::Message() << row << ", " << values);
      const CallOptions options{.algorithm = row,
                                .index_coding = kSmallest,
                                .value_coding = parse_value_codec(values),
                                .coded_values = CodedValues::both,
                                .step = 1};
      const SimRun simulated = run_in_simulation(OperationKind::allreduce, inputs, options);
      expect_no_errors(simulated.errors);
      AnyStream mine = inputs[me];
      ASSERT_TRUE(allreduce(communicator, mine, options).stream == simulated.outcomes[me].stream);
    }
  }
}

inline void expect_programs_run(Communicator& communicator) {
  const auto inputs = make_inputs(communicator.size(), {.type = ValueType::i64, .dimension = 5000, .nnz = 100});
  std::vector<Outcome> outcomes;
  run_program(communicator, one_collective(OperationKind::allreduce, inputs, {}, outcomes));
  const Outcome& mine = outcomes[static_cast<std::size_t>(communicator.rank())];
  std::vector<double> magnitudes;
  const auto expected = serial_reduction<std::int64_t>(inputs, Op::sum(), &magnitudes);
  expect_sum<std::int64_t>(mine.stream, expected, magnitudes, inputs.size(), Op::sum());
}

inline void expect_many_in_flight(Communicator& communicator) {
  place_as_simulated(communicator, {});
  const auto me = static_cast<std::size_t>(communicator.rank());
  const auto rows = rows_of(OperationKind::allreduce);
  std::vector<std::vector<AnyStream>> layers;
  std::vector<Request<Outcome>> requests;
  for (std::uint64_t layer = 0; layer < 24; ++layer) {
    layers.push_back(make_inputs(communicator.size(), spec_for(1000 + 9999 * layer, 20 + 500 * layer, layer)));
    requests.push_back(iallreduce(communicator, layers.back()[me], {.algorithm = rows[layer % rows.size()]->name}));
  }
  for (std::size_t layer = layers.size(); layer-- > 0;) {
    SCOPED_TRACE(rows[layer % rows.size()]->name);
    const SimRun simulated =
        run_in_simulation(OperationKind::allreduce, layers[layer], {.algorithm = rows[layer % rows.size()]->name});
    ASSERT_TRUE(requests[layer].wait().stream == simulated.outcomes[me].stream);
  }
}

inline void expect_parts_reduce(Communicator& communicator) {
  Communicator part = communicator.split(communicator.rank() % 2);
  const auto inputs = make_inputs(part.size(), {.type = ValueType::i32, .dimension = 3000, .nnz = 60});
  AnyStream mine = inputs[static_cast<std::size_t>(part.rank())];
  allreduce(part, mine);
  std::vector<double> magnitudes;
  const auto expected = serial_reduction<std::int32_t>(inputs, Op::sum(), &magnitudes);
  expect_sum<std::int32_t>(mine, expected, magnitudes, inputs.size(), Op::sum());
}

}  // namespace tulle::testing
