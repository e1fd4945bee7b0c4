// Every row of the registry on real MPI.
#include "collectives/rows_on_transport.hpp"
#include "comm_mpi/mpi_fixture.hpp"

namespace tulle::testing {
namespace {

TEST(OnMpi, every_row_gives_the_bytes_of_the_simulator) {
  Communicator communicator = test_communicator();
  expect_bytes_of_simulator(communicator, {});
}

TEST(OnMpi, large_blocks_go_around_the_ring_as_in_the_simulator) {
  Communicator communicator = test_communicator();
  expect_bytes_of_simulator(communicator, kSlowPerByte);
}

TEST(OnMpi, contributions_are_those_of_the_simulator) {
  Communicator communicator = test_communicator();
  for (const Profile& profile : {Profile{}, kSlowPerByte}) expect_contributions_of_simulator(communicator, profile);
}

// Where a message is cut must not show in what arrives: frame heads detached from their arrays, pieces of odd sizes.
TEST(OnMpi, every_row_gives_the_bytes_of_the_simulator_wherever_messages_are_cut) {
  for (const MpiOptions& cuts : {MpiOptions{.detach_bytes = 1}, MpiOptions{.detach_bytes = 56},
                                 MpiOptions{.detach_bytes = 57}, MpiOptions{.chunk_bytes = 50}}) {
    Communicator communicator = test_communicator(cuts);
    place_as_simulated(communicator, {});
    const auto me = static_cast<std::size_t>(communicator.rank());
    for (int repeat = 0; repeat < 3; ++repeat) {
      const auto seed = static_cast<std::uint64_t>(repeat);
      const auto inputs = make_inputs(communicator.size(), spec_for(3001, 700, seed));
      for (const Algorithm* row : rows_on_messages()) {
        SCOPED_TRACE(::testing::Message()
                     << row->name << ", detach " << cuts.detach_bytes << ", chunk " << cuts.chunk_bytes);
        const CallOptions options{.algorithm = row->name};
        const SimRun simulated = run_in_simulation(row->kind, inputs, options);
        const Outcome outcome = start_collective(row->kind, communicator, inputs[me], options).wait();
        ASSERT_TRUE(outcome.stream == simulated.outcomes[me].stream);
      }
    }
  }
}

// A head that is read before it has come gives wrong sums now and then, so this takes many of them.
TEST(OnMpi, dense_sums_are_right_however_often_they_are_made_of_detached_heads) {
  Communicator communicator = test_communicator({.detach_bytes = 1});
  place_as_simulated(communicator, {});
  const auto me = static_cast<std::size_t>(communicator.rank());
  const auto inputs = make_inputs(communicator.size(), spec_for(30000, 30000, 5));
  const SimRun simulated = run_in_simulation(OperationKind::allreduce, inputs, {.algorithm = "dense_ring"});
  for (int repeat = 0; repeat < 100; ++repeat) {
    const Outcome outcome = iallreduce(communicator, inputs[me], {.algorithm = "dense_ring"}).wait();
    ASSERT_TRUE(outcome.stream == simulated.outcomes[me].stream) << repeat;
  }
}

TEST(OnMpi, every_row_on_accumulators_gives_the_bytes_of_the_simulator) {
  Communicator communicator = test_communicator();
  expect_bytes_of_simulator_on_accumulators(communicator);
}

TEST(OnMpi, coded_frames_give_the_bytes_of_the_simulator) {
  Communicator communicator = test_communicator();
  expect_bytes_of_simulator_with_codings(communicator);
}

TEST(OnMpi, programs_written_as_coroutines_run_too) {
  Communicator communicator = test_communicator();
  expect_programs_run(communicator);
}

TEST(OnMpi, many_in_flight_complete_in_any_order) {
  Communicator communicator = test_communicator();
  expect_many_in_flight(communicator);
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
  expect_parts_reduce(communicator);
}

}  // namespace
}  // namespace tulle::testing
