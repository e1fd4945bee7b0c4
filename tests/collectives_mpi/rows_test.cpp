// Every row of the registry on real MPI: the bytes of the simulator, blocking and non-blocking.
#include <numeric>

#include "collectives/accumulators.hpp"
#include "comm_mpi/mpi_fixture.hpp"

namespace tulle::testing {
namespace {

SyntheticSpec spec_for(std::uint64_t dimension, std::uint64_t nnz, std::uint64_t seed) {
  return {.dimension = dimension, .nnz = nnz, .values = SyntheticValues::gaussian_like, .seed = seed};
}

std::vector<std::pair<std::uint64_t, std::uint64_t>> sizes(int ranks) {
  const auto p = static_cast<std::uint64_t>(ranks);
  return {{0, 0}, {1, 1}, {p - 1, 1}, {p, p}, {4097, 0}, {4097, 41}, {100003, 100}, {100003, 30001}, {100003, 100003}};
}

void expect_bytes_of_simulator(const Profile& profile) {
  Communicator communicator = test_communicator();
  std::vector<int> nodes(static_cast<std::size_t>(communicator.size()));
  std::iota(nodes.begin(), nodes.end(), 0);  // simulated ranks are on nodes of their own
  communicator.set_nodes(nodes);
  communicator.set_profile(profile);
  const auto me = static_cast<std::size_t>(communicator.rank());
  for (const auto& [dimension, nnz] : sizes(communicator.size())) {
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

TEST(OnMpi, every_row_gives_the_bytes_of_the_simulator) { expect_bytes_of_simulator({}); }

TEST(OnMpi, large_blocks_go_around_the_ring_as_in_the_simulator) {
  expect_bytes_of_simulator({.alpha_seconds = 1e-9, .beta_seconds_per_byte = 1e-6});
}

TEST(OnMpi, every_row_on_accumulators_gives_the_bytes_of_the_simulator) {
  Communicator communicator = test_communicator();
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

TEST(OnMpi, coded_frames_give_the_bytes_of_the_simulator) {
  Communicator communicator = test_communicator();
  const auto me = static_cast<std::size_t>(communicator.rank());
  const auto inputs = make_inputs(communicator.size(), spec_for(200000, 60000, 5));
  for (const std::string_view row : {"ssar_split_allgather", "dsar_split_allgather"}) {
    for (const char* const values : {"raw", "qsgd:bits=4", "three_lc:s=1.5"}) {
      SCOPED_TRACE(::testing::Message() << row << ", " << values);
      const CallOptions options{.algorithm = row,
                                .index_coding = kSmallest,
                                .value_coding = parse_value_codec(values),
                                .codes_contributions = true,
                                .step = 1};
      const SimRun simulated = run_in_simulation(OperationKind::allreduce, inputs, options);
      expect_no_errors(simulated.errors);
      AnyStream mine = inputs[me];
      ASSERT_TRUE(allreduce(communicator, mine, options).stream == simulated.outcomes[me].stream);
    }
  }
}

TEST(OnMpi, programs_written_as_coroutines_run_too) {
  Communicator communicator = test_communicator();
  const auto inputs = make_inputs(communicator.size(), {.type = ValueType::i64, .dimension = 5000, .nnz = 100});
  std::vector<Outcome> outcomes;
  run_program(communicator, one_collective(OperationKind::allreduce, inputs, {}, outcomes));
  const Outcome& mine = outcomes[static_cast<std::size_t>(communicator.rank())];
  std::vector<double> magnitudes;
  const auto expected = serial_reduction<std::int64_t>(inputs, Op::sum(), &magnitudes);
  expect_sum<std::int64_t>(mine.stream, expected, magnitudes, inputs.size(), Op::sum());
}

TEST(OnMpi, many_in_flight_complete_in_any_order) {
  Communicator communicator = test_communicator();
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

TEST(OnMpi, mpi_native_sums_as_the_others_do) {
  Communicator communicator = test_communicator();
  const auto me = static_cast<std::size_t>(communicator.rank());
  const auto inputs = make_inputs(communicator.size(), {.type = ValueType::i64, .dimension = 5000, .nnz = 700});
  std::vector<double> magnitudes;
  const auto expected = serial_reduction<std::int64_t>(inputs, Op::sum(), &magnitudes);
  const CallOptions options{.algorithm = "mpi_native"};
  AnyStream blocking = inputs[me];
  allreduce(communicator, blocking, options);
  expect_sum<std::int64_t>(blocking, expected, magnitudes, inputs.size(), Op::sum());
  auto first = iallreduce(communicator, inputs[me], options);
  auto second = iallreduce(communicator, inputs[me], {.algorithm = "dense_ring"});
  expect_sum<std::int64_t>(second.wait().stream, expected, magnitudes, inputs.size(), Op::sum());
  expect_sum<std::int64_t>(first.wait().stream, expected, magnitudes, inputs.size(), Op::sum());
}

TEST(OnMpi, several_mpi_natives_in_flight_do_not_mix) {
  Communicator communicator = test_communicator();
  const auto me = static_cast<std::size_t>(communicator.rank());
  const CallOptions native{.algorithm = "mpi_native"};
  std::vector<std::vector<AnyStream>> layers;
  std::vector<Request<Outcome>> requests;
  for (std::uint64_t layer = 0; layer < 6; ++layer) {
    layers.push_back(
        make_inputs(communicator.size(), {.type = ValueType::i64, .dimension = 2000, .nnz = 100, .seed = layer}));
    requests.push_back(iallreduce(communicator, layers.back()[me], layer == 2 ? CallOptions{} : native));
  }
  AnyStream blocking = layers[0][me];
  allreduce(communicator, blocking, native);  // while the others are in flight
  std::vector<double> magnitudes;
  for (std::size_t layer = layers.size(); layer-- > 0;) {
    const auto expected = serial_reduction<std::int64_t>(layers[layer], Op::sum(), &magnitudes);
    expect_sum<std::int64_t>(requests[layer].wait().stream, expected, magnitudes, layers[layer].size(), Op::sum());
    if (layer == 0) expect_sum<std::int64_t>(blocking, expected, magnitudes, layers[0].size(), Op::sum());
  }
}

TEST(OnMpi, parts_of_a_split_reduce_by_themselves) {
  Communicator communicator = test_communicator();
  Communicator part = communicator.split(communicator.rank() % 2);
  const auto inputs = make_inputs(part.size(), {.type = ValueType::i32, .dimension = 3000, .nnz = 60});
  AnyStream mine = inputs[static_cast<std::size_t>(part.rank())];
  allreduce(part, mine);
  std::vector<double> magnitudes;
  const auto expected = serial_reduction<std::int32_t>(inputs, Op::sum(), &magnitudes);
  expect_sum<std::int32_t>(mine, expected, magnitudes, inputs.size(), Op::sum());
}

}  // namespace
}  // namespace tulle::testing
