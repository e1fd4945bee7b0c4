// Calls as programs make them: requests that are dropped, names that are gone, states that part ways, channels.
#include <atomic>
#include <latch>
#include <memory>
#include <string>
#include <thread>

#include "base/error_of.hpp"
#include "collectives/accumulators.hpp"
#include "tulle/comm/threads.hpp"

namespace tulle::testing {
namespace {

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// ---------------------------------------------------------------- seeds and steps

TEST(Seeds, that_differ_between_ranks_are_told_where_values_are_rounded_by_them) {
  auto all = make_accumulators<float>(4, 2000);
  const auto errors_with = [&](std::string_view coding, bool seed_is_rank, bool step_is_rank) {
    SimWorld world({.ranks = 4});
    return world.try_run([&](Communicator& communicator) -> Task<> {
      const auto rank = static_cast<std::size_t>(communicator.rank());
      CallOptions options{.algorithm = "spardl", .value_coding = parse_value_codec(coding), .k = 100, .teams = 2};
      if (seed_is_rank) options.seed = rank;
      if (step_is_rank) options.step = rank;
      auto request = iallreduce(communicator, Accumulator(std::span<float>(all[rank])), options);
      co_await request;
    });
  };
  expect_no_errors(errors_with("qsgd:bits=4", false, false));
  expect_no_errors(errors_with("raw", true, false));  // nothing is drawn
  for (const auto& errors : {errors_with("qsgd:bits=4", true, false), errors_with("qsgd:bits=4", false, true)}) {
    for (const auto& error : errors) EXPECT_TRUE(error) << "replicas would part ways in silence";
    EXPECT_TRUE(contains(message_of(errors[0]), "options")) << message_of(errors[0]);
  }
}

// Their checksums have the same 12 bits, and so would those of all their calls.
TEST(Seeds, that_look_alike_in_one_call_are_told_by_a_later_one) {
  auto all = make_accumulators<float>(2, 2000);
  SimWorld world({.ranks = 2});
  const auto errors = world.try_run([&](Communicator& communicator) -> Task<> {
    const auto rank = static_cast<std::size_t>(communicator.rank());
    CallOptions options{.algorithm = "spardl", .value_coding = parse_value_codec("qsgd:bits=4"), .k = 100, .teams = 2};
    options.seed = rank * 7731;
    for (int call = 0; call < 4; ++call) {
      auto request = iallreduce(communicator, Accumulator(std::span<float>(all[rank])), options);
      co_await request;
    }
  });
  for (const auto& error : errors) {
    ASSERT_TRUE(error);
    EXPECT_TRUE(contains(message_of(error), "options")) << message_of(error);
  }
}

TEST(Channels, draw_dice_of_their_own) {
  const auto inputs = make_inputs(2, {.dimension = 5000, .nnz = 5000, .values = SyntheticValues::gaussian_like});
  const auto sum_on = [&](std::uint32_t channel) {
    std::vector<AnyStream> sums(2);
    run_threads(2, [&](Communicator& communicator) {
      Communicator mine = communicator.channel(channel);
      AnyStream stream = inputs[static_cast<std::size_t>(communicator.rank())];
      allreduce(mine, stream,
                {.algorithm = "dsar_split_allgather", .value_coding = parse_value_codec("qsgd:bits=2"), .step = 1});
      sums[static_cast<std::size_t>(communicator.rank())] = stream;
    });
    EXPECT_TRUE(sums[0] == sums[1]);
    return sums[0];
  };
  EXPECT_TRUE(sum_on(0) == sum_on(0));
  EXPECT_FALSE(sum_on(0) == sum_on(1));
  EXPECT_FALSE(sum_on(1) == sum_on(2));
}

TEST(Channels, sum_tensors_that_ranks_start_in_another_order) {
  constexpr int kRanks = 3, kTensors = 12;
  std::vector<std::vector<AnyStream>> inputs;
  for (std::uint64_t tensor = 0; tensor < kTensors; ++tensor) {
    inputs.push_back(
        make_inputs(kRanks, {.type = ValueType::i64, .dimension = 1000 + tensor, .nnz = 50, .seed = tensor}));
  }
  std::vector<std::vector<Outcome>> outcomes(kTensors, std::vector<Outcome>(kRanks));
  run_threads(kRanks, [&](Communicator& communicator) {
    if (communicator.rank() != 1) communicator.start_progress_thread();
    const auto rank = static_cast<std::size_t>(communicator.rank());
    std::vector<Request<Outcome>> requests(kTensors);
    for (std::size_t i = 0; i < kTensors; ++i) {
      const std::size_t tensor = (i * 5 + rank * 4) % kTensors;
      Communicator channel = communicator.channel(static_cast<std::uint32_t>(tensor));
      requests[tensor] = iallreduce(channel, inputs[tensor][rank]);
    }
    for (std::size_t tensor = 0; tensor < kTensors; ++tensor) outcomes[tensor][rank] = requests[tensor].wait();
  });
  for (std::size_t tensor = 0; tensor < kTensors; ++tensor) {
    expect_correct<std::int64_t>(OperationKind::allreduce, inputs[tensor], outcomes[tensor], {});
  }
}

TEST(Channels, refuse_the_transports_own_allreduce) {
  SimWorld world({.ranks = 1});
  Communicator channel = world.communicator(0).channel(1);
  AnyStream stream = Stream<float>(10);
  EXPECT_TRUE(contains(error_of([&] { allreduce(channel, stream, {.algorithm = "mpi_native"}); }), "no channel"));
}

// ---------------------------------------------------------------- what calls keep

TEST(Names, in_options_may_go_once_the_call_is_made) {
  const auto inputs = make_inputs(2, {.dimension = 3000, .nnz = 300});
  run_threads(2, [&](Communicator& communicator) {
    Request<Outcome> request;
    {
      std::string row = "ssar_split_allgather", coding = "rice";
      request = iallreduce(communicator, inputs[static_cast<std::size_t>(communicator.rank())],
                           {.algorithm = row, .index_coding = coding});
      std::fill(row.begin(), row.end(), 'x');
      std::fill(coding.begin(), coding.end(), 'x');
    }
    EXPECT_EQ(request.wait().algorithm, "ssar_split_allgather");
    std::vector<float> values(1000, static_cast<float>(communicator.rank()));
    {
      std::string gather = "r_sag";
      request = iallreduce(communicator, Accumulator(std::span<float>(values)),
                           {.algorithm = "spardl", .k = 10, .team_gather = gather});
      std::fill(gather.begin(), gather.end(), 'x');
    }
    (void)request.wait();
  });
}

TEST(Accumulators, whose_request_is_dropped_are_as_they_were_and_nobody_touches_them) {
  for (const bool with_thread : {false, true}) {
    for (const Algorithm* row : rows_on_accumulators()) {
      SCOPED_TRACE(row->name);
      run_threads(3, [&](Communicator& communicator) {
        if (with_thread) communicator.start_progress_thread();
        if (communicator.rank() == 2) return;  // never calls, so that the others cannot finish
        auto values = std::make_unique<std::vector<float>>(50'000);
        for (std::size_t i = 0; i < values->size(); ++i) (*values)[i] = static_cast<float>(i % 977);
        const std::vector<float> before = *values;
        try {
          const Request<Outcome> dropped =
              start_collective(row->kind, communicator, Accumulator(std::span<float>(*values)),
                               {.algorithm = row->name, .k = 500, .deadline_seconds = 30});
          if (with_thread) std::this_thread::sleep_for(std::chrono::milliseconds(2));
        } catch (const Error& error) {  // the other rank has dropped its own already
          EXPECT_EQ(error.kind(), ErrorKind::broken) << error.what();
        }
        EXPECT_TRUE(*values == before);
        values.reset();  // under the address sanitizer, who writes here now is found
        AnyStream stream = Stream<float>(10);
        EXPECT_TRUE(contains(error_of([&] { allreduce(communicator, stream); }), "broken"));
      });
    }
  }
}

TEST(Streams, that_own_their_memory_go_on_when_their_request_is_dropped) {
  run_threads(2, [](Communicator& communicator) {
    {
      (void)iallreduce(communicator,
                       synthetic_stream({.dimension = 1000, .nnz = 10, .ranks = 2, .rank = communicator.rank()}));
    }
    AnyStream stream = Stream<std::int32_t>(10);
    allreduce(communicator, stream);
  });
}

TEST(States, may_go_with_a_request_that_is_dropped) {
  for (const bool with_thread : {false, true}) {
    std::latch is_dropped(1);
    run_threads(2, [&](Communicator& communicator) {
      if (with_thread) communicator.start_progress_thread();
      auto state = std::make_unique<AlgorithmState>();
      if (communicator.rank() == 1) is_dropped.wait();  // the call cannot end before
      auto request = iallreduce(communicator, Stream<float>(100), {}, state.get());
      EXPECT_FALSE(communicator.rank() == 0 && state->in_use.take());
      if (communicator.rank() == 0) {
        request = {};
        EXPECT_TRUE(state->in_use.take());  // nobody uses it any more
        is_dropped.count_down();
      } else {
        (void)request.wait();
      }
      AnyStream stream = Stream<std::int32_t>(10);
      allreduce(communicator, stream);  // on the same channel: the first call is over, too
      EXPECT_EQ(state->calls, communicator.rank() == 0 ? 0u : 1u);
    });
  }
}

TEST(States, may_be_used_by_one_call_at_a_time) {
  run_threads(2, [](Communicator& communicator) {
    AlgorithmState state;
    auto first = iallreduce(communicator, Stream<float>(100), {}, &state);
    const auto second = [&] { (void)iallreduce(communicator, Stream<float>(100), {}, &state); };
    if (communicator.size() > 1 && !first.test()) {
      EXPECT_TRUE(contains(error_of(second), "state of its own"));
    }
    (void)first.wait();
    (void)iallreduce(communicator, Stream<float>(100), {}, &state).wait();
  });
}

TEST(States, that_part_ways_are_told) {
  constexpr int kRanks = 3;
  auto all = make_accumulators<float>(kRanks, 4000);
  std::vector<AlgorithmState> states(kRanks);
  const CallOptions options{.algorithm = "oktopk", .k = 100, .deadline_seconds = 5};
  expect_no_errors(reduce_accumulators(OperationKind::allreduce, all, options, &states).errors);
  states[1] = {};  // as after a call that failed there alone
  const SimRun run = reduce_accumulators(OperationKind::allreduce, all, options, &states);
  for (const auto& error : run.errors) {
    ASSERT_TRUE(error);
    EXPECT_TRUE(contains(message_of(error), "disagree")) << message_of(error);
  }
}

TEST(States, come_back_as_they_were_saved) {
  constexpr int kRanks = 4;
  auto all = make_accumulators<float>(kRanks, 4000);
  std::vector<AlgorithmState> states(kRanks);
  const CallOptions oktopk{.algorithm = "oktopk", .k = 100};
  const CallOptions b_sag{.algorithm = "spardl", .k = 100, .teams = 2, .team_gather = "b_sag"};
  for (int call = 0; call < 3; ++call) {
    expect_no_errors(reduce_accumulators(OperationKind::allreduce, all, oktopk, &states).errors);
    expect_no_errors(reduce_accumulators(OperationKind::allreduce, all, b_sag, &states).errors);
  }
  std::vector<AlgorithmState> loaded;
  for (const AlgorithmState& state : states) loaded.push_back(load_state(save_state(state)));
  EXPECT_EQ(save_state(loaded[2]), save_state(states[2]));
  EXPECT_EQ(loaded[2].fingerprint(), states[2].fingerprint());
  auto copy = all;
  const SimRun went_on = reduce_accumulators(OperationKind::allreduce, all, oktopk, &states);
  const SimRun resumed = reduce_accumulators(OperationKind::allreduce, copy, oktopk, &loaded);
  EXPECT_TRUE(went_on.outcomes[0].stream == resumed.outcomes[0].stream);
  EXPECT_EQ(all, copy);
}

TEST(States, of_another_number_of_ranks_start_anew_where_they_depend_on_it) {
  auto four = make_accumulators<float>(4, 4000);
  std::vector<AlgorithmState> states(4);
  const CallOptions options{.algorithm = "oktopk", .k = 100};
  expect_no_errors(reduce_accumulators(OperationKind::allreduce, four, options, &states).errors);
  auto three = make_accumulators<float>(3, 4000), same = three;
  std::vector<AlgorithmState> old(3, load_state(save_state(states[0]))), fresh(3);
  const SimRun carried = reduce_accumulators(OperationKind::allreduce, three, options, &old);
  const SimRun anew = reduce_accumulators(OperationKind::allreduce, same, options, &fresh);
  expect_no_errors(carried.errors);
  EXPECT_TRUE(carried.outcomes[0].stream == anew.outcomes[0].stream);
}

TEST(States, that_are_damaged_or_foreign_are_refused_with_the_field) {
  const std::string good = save_state({});
  const auto error_with = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    const std::size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    text.replace(at, from.size(), to);
    return error_of([&] { (void)load_state(text); });
  };
  EXPECT_EQ(error_of([&] { (void)load_state(good); }), "no error");
  EXPECT_TRUE(contains(error_with("\"version\":1", "\"version\":2"), "version 2 is not known"));
  EXPECT_TRUE(
      contains(error_with("\"nnz_per_rank\":0.0", "\"nnz_per_rank\":\"a\""), "'state.nnz_per_rank' is no number"));
  EXPECT_TRUE(contains(error_with("\"cuts\":[]", "\"cuts\":[5,3]"), "do not follow one another"));
  EXPECT_TRUE(contains(error_with("\"calls\":0,", ""), "is missing"));
  EXPECT_TRUE(contains(error_with("{", "{\"more\":1,"), "not known"));
  EXPECT_TRUE(contains(error_of([] { (void)load_state("no"); }), "is not JSON"));
}

TEST(History, of_blocking_calls_does_not_share_thresholds_between_accumulators_of_equal_shape) {
  run_threads(2, [](Communicator& communicator) {
    const CallOptions options{.algorithm = "oktopk", .k = 20};
    std::vector<float> large(1000), small(1000);
    for (std::size_t i = 0; i < large.size(); ++i) {
      large[i] = static_cast<float>(1000 + i);
      small[i] = static_cast<float>(i) / 1000;
    }
    allreduce(communicator, Accumulator(std::span<float>(large)), options);
    const Outcome outcome = allreduce(communicator, Accumulator(std::span<float>(small)), options);
    EXPECT_EQ(outcome.stream.nnz(), 20u);  // by the other layer's threshold none would pass
  });
}

// ---------------------------------------------------------------- dense vectors in place

TEST(InPlace, a_dense_vector_becomes_the_sum) {
  run_threads(3, [](Communicator& communicator) {
    std::vector<float> values(1000);
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = static_cast<float>(i) + static_cast<float>(communicator.rank());
    const Outcome outcome = allreduce(communicator, std::span<float>(values));
    EXPECT_TRUE(outcome.algorithm.starts_with("dense")) << outcome.algorithm;
    for (std::size_t i = 0; i < values.size(); ++i) ASSERT_EQ(values[i], 3 * static_cast<float>(i) + 3);
    std::vector<std::int64_t> integers(5, communicator.rank());
    auto request = iallreduce(communicator, std::span<std::int64_t>(integers), {.op = Op::max()});
    (void)request.wait();
    EXPECT_EQ(integers, std::vector<std::int64_t>(5, 2));
    std::vector<double> empty;
    allreduce(communicator, std::span<double>(empty));
  });
}

// A rank alone, whose transport has an allreduce of its own that never ends.
class EndlessAllreduce final : public Transport, public NativeAllreduce {
 public:
  std::string name() const override { return "endless"; }
  int rank() const override { return 0; }
  int size() const override { return 1; }
  void attach(MessageSink&) override {}
  void send(int, Message) override {}
  bool poll() override { return false; }
  double now() const override { return 0; }
  NativeAllreduce* native_allreduce() override { return this; }
  void start(Buffer input, Buffer, std::uint64_t, ValueType, OpCode, bool) override { read = std::move(input); }
  bool test() override { return false; }

  Buffer read;
};

// MPI cannot be told to stop, and goes on reading what it was given.
TEST(InPlace, a_native_allreduce_reads_no_memory_of_a_request_that_was_dropped) {
  auto transport = std::make_unique<EndlessAllreduce>();
  const EndlessAllreduce& native = *transport;
  Communicator communicator(std::move(transport));
  std::vector<float> values(1000, 1.0f);
  { const auto dropped = iallreduce(communicator, std::span<float>(values), {.algorithm = "mpi_native"}); }
  ASSERT_EQ(native.read.size(), 4000u);
  EXPECT_FALSE(native.read.is_borrowed());
}

// ---------------------------------------------------------------- what computes, and where

TEST(Locks, are_not_held_while_anything_computes) {
  std::atomic<int> computed = 0, under_lock = 0;
  const Op watched = Op::user<float>("watched", 0.0f, [&](float a, float b) {
    computed += 1;
    under_lock += EngineLock::held_by_this_thread() > 0;
    return a + b;
  });
  const auto inputs = make_inputs(3, {.dimension = 2000, .nnz = 500});
  for (const Algorithm* row : rows_of(OperationKind::allreduce)) {
    run_threads(3, [&](Communicator& communicator) {
      communicator.start_progress_thread();
      AnyStream stream = inputs[static_cast<std::size_t>(communicator.rank())];
      allreduce(communicator, stream, {.algorithm = row->name, .op = watched});
    });
  }
  EXPECT_GT(computed, 0);
  EXPECT_EQ(under_lock, 0);
}

TEST(UserOps, that_throw_fail_the_call_on_all_ranks) {
  for (const bool with_thread : {false, true}) {
    std::atomic<int> failed = 0;
    run_threads(3, [&](Communicator& communicator) {
      if (with_thread) communicator.start_progress_thread();
      const bool throws = communicator.rank() == 1;
      const Op op = Op::user<float>("throws", 0.0f, [throws](float a, float b) {
        if (throws) throw 7;
        return a + b;
      });
      Stream<float> stream = Stream<float>::dense(std::vector<float>(64, 1.0f));
      AnyStream any = stream;
      failed += error_of([&] {
                  allreduce(communicator, any, {.algorithm = "dense_ring", .op = op, .deadline_seconds = 20});
                }) != "no error";
    });
    EXPECT_EQ(failed, 3);
  }
}

}  // namespace
}  // namespace tulle::testing
