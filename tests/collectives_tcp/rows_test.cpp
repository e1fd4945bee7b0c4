// Every row of the registry on TCP, ranks as threads with a transport each.
#include "collectives/rows_on_transport.hpp"
#include "comm_tcp/tcp_fixture.hpp"

namespace tulle::testing {
namespace {

void run_communicators(int ranks, const std::function<void(Communicator&)>& body, const TcpOptions& options = {}) {
  Lobby lobby(ranks);
  run_ranks(ranks, [&](int rank) {
    LobbyRendezvous rendezvous(lobby, rank);
    Communicator communicator = connect(rendezvous, options);
    communicator.set_default_deadline(60);
    body(communicator);
  });
}

class OnTcp : public ::testing::TestWithParam<int> {
 protected:
  static int ranks() { return GetParam(); }
};
INSTANTIATE_TEST_SUITE_P(Ranks, OnTcp, ::testing::Values(1, 2, 3, 4, 7));

TEST_P(OnTcp, every_row_gives_the_bytes_of_the_simulator) {
  run_communicators(ranks(), [](Communicator& communicator) { expect_bytes_of_simulator(communicator, {}); });
}

TEST_P(OnTcp, large_blocks_go_around_the_ring_as_in_the_simulator) {
  run_communicators(ranks(), [](Communicator& communicator) { expect_bytes_of_simulator(communicator, kSlowPerByte); });
}

TEST_P(OnTcp, contributions_are_those_of_the_simulator) {
  for (const Profile& profile : {Profile{}, kSlowPerByte}) {
    run_communicators(ranks(),
                      [&](Communicator& communicator) { expect_contributions_of_simulator(communicator, profile); });
  }
}

// Everything that is not tiny is detached, half of it is read from memory, in small pieces, through small buffers.
TEST_P(OnTcp, every_row_gives_the_bytes_of_the_simulator_in_small_pieces) {
  const TcpOptions options{.detach_bytes = 64,
                           .pull_bytes = 5000,
                           .pull_chunk_bytes = 3001,
                           .send_buffer_bytes = 1,
                           .receive_buffer_bytes = 100'000};
  run_communicators(
      ranks(), [](Communicator& communicator) { expect_bytes_of_simulator(communicator, {}); }, options);
}

TEST_P(OnTcp, every_row_on_accumulators_gives_the_bytes_of_the_simulator) {
  run_communicators(ranks(), expect_bytes_of_simulator_on_accumulators);
}

TEST_P(OnTcp, coded_frames_give_the_bytes_of_the_simulator) {
  run_communicators(ranks(), expect_bytes_of_simulator_with_codings);
}

TEST_P(OnTcp, programs_written_as_coroutines_run_too) { run_communicators(ranks(), expect_programs_run); }

TEST_P(OnTcp, many_in_flight_complete_in_any_order) { run_communicators(ranks(), expect_many_in_flight); }

TEST_P(OnTcp, many_in_flight_complete_in_any_order_without_reading_memory) {
  run_communicators(ranks(), expect_many_in_flight, {.host_reads = HostReads::never});
}

TEST_P(OnTcp, parts_of_a_split_reduce_by_themselves) { run_communicators(ranks(), expect_parts_reduce); }

TEST_P(OnTcp, many_in_flight_complete_with_a_progress_thread) {
  run_communicators(ranks(), [](Communicator& communicator) {
    communicator.start_progress_thread();
    expect_many_in_flight(communicator);
  });
}

TEST_P(OnTcp, rows_run_where_connections_are_made_on_demand) {
  run_communicators(ranks(), expect_many_in_flight, {.lazy_above = 1});
}

TEST(OnTcpAlone, a_progress_thread_finishes_what_the_caller_does_not_wait_for) {
  run_communicators(2, [](Communicator& communicator) {
    communicator.start_progress_thread();
    const auto inputs = make_inputs(2, {.type = ValueType::i64, .dimension = 500'000, .nnz = 200'000});
    auto request = iallreduce(communicator, inputs[static_cast<std::size_t>(communicator.rank())], {});
    const Deadline deadline(30);
    while (!request.test() && !deadline.has_passed()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_TRUE(request.test());
    std::vector<double> magnitudes;
    const auto expected = serial_reduction<std::int64_t>(inputs, Op::sum(), &magnitudes);
    expect_sum<std::int64_t>(request.wait().stream, expected, magnitudes, inputs.size(), Op::sum());
  });
}

TEST(OnTcpAlone, ranks_of_one_host_are_on_one_node) {
  run_communicators(3, [](Communicator& communicator) {
    EXPECT_EQ(communicator.node_count(), 1);
    EXPECT_EQ(communicator.engine()->transport().name(), "tcp");
  });
}

}  // namespace
}  // namespace tulle::testing
