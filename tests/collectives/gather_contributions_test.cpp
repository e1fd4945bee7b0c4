// Everyone's coded contribution to everyone, each by itself, and the mean over its senders.
#include "tulle/collectives/gather_contributions.hpp"

#include <map>

#include "collectives/count_allocations.hpp"
#include "collectives/harness.hpp"
#include "tulle/codec/frame.hpp"
#include "tulle/comm/network.hpp"
#include "tulle/comm/threads.hpp"

namespace tulle::testing {
namespace {

struct GatherRun {
  std::vector<Contributions> gathered;
  std::vector<std::exception_ptr> errors;
  double seconds = 0;
};

GatherRun run_gather(const std::vector<AnyStream>& inputs, const CallOptions& options = {}, SimOptions sim = {}) {
  sim.ranks = static_cast<int>(inputs.size());
  SimWorld world(sim);
  GatherRun run;
  run.gathered.resize(inputs.size());
  const Program program = [&](Communicator& communicator) -> Task<> {
    const auto rank = static_cast<std::size_t>(communicator.rank());
    auto request = igather_contributions(communicator, inputs[rank], options);
    run.gathered[rank] = co_await request;
  };
  run.errors = world.try_run(program);
  run.seconds = world.elapsed_seconds();
  return run;
}

// What one rank alone would make of its stream: coded with the key that the header promises, and decoded.
AnyStream coded_alone(const AnyStream& stream, std::size_t rank, const CallOptions& options) {
  Segments segments;
  const RoundingKey key{.seed = options.seed, .rank = rank, .step = options.step.value_or(0) << 16};
  encode_frame(stream, {}, {.indices = IndexCoding::raw, .values = options.value_coding, .rounding = key}, segments);
  std::span<const Buffer> rest = segments;
  return decode_frame(rest, {.type = stream.type(), .dimension = stream.dimension()}).stream;
}

void expect_gathered(const GatherRun& run, const std::vector<AnyStream>& inputs, const CallOptions& options) {
  expect_no_errors(run.errors);
  for (const Contributions& contributions : run.gathered) {
    ASSERT_EQ(contributions.by_rank.size(), inputs.size());
    for (std::size_t rank = 0; rank < inputs.size(); ++rank) {
      const AnyStream expected = coded_alone(inputs[rank], rank, options);
      ASSERT_TRUE(contributions.by_rank[rank].stream == expected) << "rank " << rank;
      ASSERT_EQ(contributions.by_rank[rank].norm, l2_norm(expected));
    }
  }
}

std::vector<AnyStream> mixed_inputs(int ranks, std::uint64_t dimension, std::uint64_t seed = 1) {
  std::vector<AnyStream> inputs = make_inputs(
      ranks, {.dimension = dimension, .nnz = dimension / 5, .values = SyntheticValues::gaussian_like, .seed = seed});
  for (std::size_t rank = 0; rank < inputs.size(); ++rank) {
    if (rank % 4 == 1) inputs[rank] = to_dense(inputs[rank], Op::sum());
    if (rank % 4 == 2) inputs[rank] = AnyStream::empty(ValueType::f32, dimension);
  }
  return inputs;
}

// What same_sign_mean asks for.
std::vector<AnyStream> inputs_for(const ValueCodec& codec, int ranks, std::uint64_t dimension, std::uint64_t seed = 1) {
  std::vector<AnyStream> inputs = mixed_inputs(ranks, dimension, seed);
  if (codec.coding != ValueCoding::same_sign_mean) return inputs;
  for (AnyStream& input : inputs) {
    Buffer values = Buffer::copy_of(input.values_buffer().bytes());
    for (float& value : values.as_mutable<float>()) value = std::abs(value);
    input = input.is_dense()
                ? AnyStream::dense(input.type(), dimension, input.range(), values)
                : AnyStream::sparse(input.type(), dimension, input.range(), input.indices_buffer(), values);
  }
  return inputs;
}

std::vector<std::string_view> codecs() {
  return {"raw",         "f16",           "int8", "qsgd:bits=4", "three_value_stochastic", "three_lc:s=1.5",
          "one_bit_mqe", "same_sign_mean"};
}

class Contributed : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Simulated, Contributed, ::testing::ValuesIn(rank_counts()),
                         [](const auto& info) { return "P" + std::to_string(info.param); });

TEST_P(Contributed, streams_arrive_as_their_rank_decodes_them_with_every_codec) {
  for (const std::string_view codec : codecs()) {
    SCOPED_TRACE(codec);
    const CallOptions options{.value_coding = parse_value_codec(codec), .seed = 7, .step = 3};
    const auto inputs = inputs_for(options.value_coding, GetParam(), 300);
    expect_gathered(run_gather(inputs, options), inputs, options);
    // Where every contribution is worth a message of its own they go around a ring.
    const SimOptions ring{.profile = {.alpha_seconds = 1e-9, .beta_seconds_per_byte = 1e-6},
                          .faults = {.max_delay_seconds = 1e-3}};
    expect_gathered(run_gather(inputs, options, ring), inputs, options);
  }
}

TEST_P(Contributed, streams_of_any_type_arrive) {
  for (const ValueType type : {ValueType::f64, ValueType::i32, ValueType::i64}) {
    const auto inputs = make_inputs(GetParam(), {.type = type, .dimension = 40, .nnz = 9});
    expect_gathered(run_gather(inputs), inputs, {});
  }
  for (const std::uint64_t dimension : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{1} << 40}) {
    const auto inputs = make_inputs(GetParam(), {.dimension = dimension, .nnz = 5});
    expect_gathered(run_gather(inputs), inputs, {});
  }
}

TEST_P(Contributed, sixteen_bit_values_come_back_wide) {
  std::vector<AnyStream> inputs, wide;
  for (const AnyStream& stream : mixed_inputs(GetParam(), 64)) {
    inputs.push_back(convert(stream, ValueType::f16));
    wide.push_back(convert(inputs.back(), ValueType::f32));
  }
  expect_gathered(run_gather(inputs), wide, {});
}

TEST_P(Contributed, mean_of_senders_has_the_same_bits_everywhere) {
  const auto inputs = mixed_inputs(GetParam(), 5000);
  const CallOptions options{.value_coding = parse_value_codec("three_value_stochastic"), .seed = 3};
  const GatherRun run = run_gather(inputs, options);
  expect_no_errors(run.errors);
  const AnyStream mean = mean_of_senders(run.gathered.front(), Clipping::median_norm);
  for (const Contributions& contributions : run.gathered) {
    EXPECT_TRUE(mean_of_senders(contributions, Clipping::median_norm) == mean);
  }
}

TEST(GatherContributions, draws_anew_for_every_step_channel_and_seed) {
  const auto inputs = make_inputs(2, {.dimension = 1000, .nnz = 400, .values = SyntheticValues::gaussian_like});
  const auto gathered = [&](std::uint64_t seed, std::uint64_t step, std::uint32_t channel) {
    AnyStream mine;
    SimWorld world({.ranks = 2});
    world.run([&](Communicator& communicator) -> Task<> {
      Communicator on = communicator.channel(channel);
      const CallOptions options{
          .value_coding = parse_value_codec("three_value_stochastic"), .seed = seed, .step = step};
      auto request = igather_contributions(on, inputs[static_cast<std::size_t>(communicator.rank())], options);
      const Contributions contributions = co_await request;
      mine = contributions.by_rank[0].stream;
    });
    return mine;
  };
  const AnyStream first = gathered(1, 1, 0);
  EXPECT_TRUE(gathered(1, 1, 0) == first);
  EXPECT_FALSE(gathered(2, 1, 0) == first);
  EXPECT_FALSE(gathered(1, 2, 0) == first);
  EXPECT_FALSE(gathered(1, 1, 5) == first);
}

// Error feedback: what was selected minus what was delivered of it is what stays.
TEST(GatherContributions, shows_a_rank_what_everyone_decodes_of_its_own) {
  const auto inputs = mixed_inputs(3, 1000);
  const CallOptions options{.value_coding = parse_value_codec("three_lc"), .seed = 1};
  const GatherRun run = run_gather(inputs, options);
  expect_no_errors(run.errors);
  for (std::size_t rank = 0; rank < 3; ++rank) {
    for (std::size_t other = 0; other < 3; ++other) {
      EXPECT_TRUE(run.gathered[rank].by_rank[rank].stream == run.gathered[other].by_rank[rank].stream);
    }
  }
}

TEST(GatherContributions, runs_on_threads_blocking_and_in_any_order_of_channels) {
  const auto inputs = mixed_inputs(4, 2000);
  const CallOptions options{.value_coding = parse_value_codec("int8"), .step = 9};
  const GatherRun simulated = run_gather(inputs, options);
  run_threads(4, [&](Communicator& communicator) {
    const auto rank = static_cast<std::size_t>(communicator.rank());
    const Contributions blocking = gather_contributions(communicator, inputs[rank], options);
    for (std::size_t other = 0; other < 4; ++other) {
      EXPECT_TRUE(blocking.by_rank[other].stream == simulated.gathered[0].by_rank[other].stream);
    }
    std::map<std::uint32_t, Request<Contributions>> requests;
    for (std::uint32_t i = 0; i < 3; ++i) {
      const std::uint32_t channel = rank % 2 == 0 ? 1 + i : 3 - i;
      Communicator on = communicator.channel(channel);
      requests.emplace(channel, igather_contributions(on, inputs[(rank + channel) % 4]));
    }
    for (auto& [channel, request] : requests) {
      const Contributions contributions = request.wait();
      for (std::size_t other = 0; other < 4; ++other) {
        EXPECT_TRUE(contributions.by_rank[other].stream == inputs[(other + channel) % 4]);
      }
    }
  });
}

TEST(GatherContributions, keeps_no_memory_of_the_caller) {
  std::vector<float> values(100, 1.5f);
  run_threads(3, [&](Communicator& communicator) {
    std::vector<float> mine = values;
    const Contributions contributions =
        gather_contributions(communicator, Stream<float>::borrow_dense(std::span<const float>(mine)));
    mine.assign(100, 0);
    for (const Contribution& contribution : contributions.by_rank) {
      EXPECT_EQ(Stream<float>(contribution.stream).values()[99], 1.5f);
    }
  });
}

TEST(GatherContributions, tells_wrong_input_before_anything_is_sent) {
  SimWorld world({.ranks = 2});
  world.run([](Communicator& communicator) -> Task<> {
    const Stream<float> stream(10);
    const AnyStream block = slice(stream, {0, 5});
    const auto message = [&](AnyStream given, const CallOptions& options) {
      try {
        (void)igather_contributions(communicator, std::move(given), options);
      } catch (const Error& error) {
        return std::string(error.what());
      }
      return std::string("nothing was thrown");
    };
    EXPECT_NE(message(block, {}).find("gather_contributions takes a stream of the whole dimension"), std::string::npos);
    EXPECT_NE(message(stream, {.algorithm = "topka"}).find("one way, not by 'topka'"), std::string::npos);
    EXPECT_NE(message(stream, {.op = Op::max()}).find("not reduced by max"), std::string::npos);
    EXPECT_NE(message(Stream<int>(10), {.value_coding = parse_value_codec("int8")}).find("not i32"), std::string::npos);
    auto request = igather_contributions(communicator, stream);
    const Contributions contributions = co_await request;
    EXPECT_EQ(contributions.by_rank.size(), 2u);
  });
}

TEST(GatherContributions, tells_everyone_of_values_that_a_codec_cannot_carry) {
  auto inputs = mixed_inputs(3, 16);
  const std::vector<float> bad(16, std::numeric_limits<float>::quiet_NaN());
  inputs[1] = Stream<float>::dense(std::span<const float>(bad));
  const GatherRun run = run_gather(inputs, {.value_coding = parse_value_codec("int8"), .deadline_seconds = 1});
  for (const auto& error : run.errors)
    EXPECT_NE(message_of(error).find("value 0 is nan"), std::string::npos) << message_of(error);
}

TEST(GatherContributions, tells_ranks_that_disagree) {
  for (const bool other_kind : {false, true}) {
    SimWorld world({.ranks = 2});
    const auto errors = world.try_run([&](Communicator& communicator) -> Task<> {
      if (communicator.rank() == 1 && other_kind) {
        auto request = iallgather(communicator, Stream<float>(10));
        co_await request;
        co_return;
      }
      const std::string_view codec = communicator.rank() == 0 ? "int8" : "one_bit_mqe";
      auto request = igather_contributions(communicator, Stream<float>(10), {.value_coding = parse_value_codec(codec)});
      co_await request;
    });
    for (const auto& error : errors) {
      const std::string message = message_of(error);
      EXPECT_NE(message.find("ranks disagree on operation 0"), std::string::npos) << message;
      EXPECT_NE(message.find("gather_contributions of 10 f32"), std::string::npos) << message;
    }
  }
}

TEST(GatherContributions, gives_the_right_bits_or_an_error_under_faults) {
  std::uint64_t failures = 0;
  for (std::uint64_t seed = 1; seed <= 120; ++seed) {
    const CallOptions options{.value_coding = parse_value_codec(codecs()[seed % codecs().size()]),
                              .step = 1,
                              .deadline_seconds = 0.05,
                              .checksum = true};
    const auto inputs = inputs_for(options.value_coding, 2 + static_cast<int>(seed % 6), 200, seed);
    SimOptions sim{.seed = seed, .faults = {.max_delay_seconds = 1e-4}};
    (seed % 3 == 0 ? sim.faults.drop : seed % 3 == 1 ? sim.faults.truncate : sim.faults.corrupt) = 0.05;
    const GatherRun run = run_gather(inputs, options, sim);
    for (std::size_t rank = 0; rank < inputs.size(); ++rank) {
      failures += run.errors[rank] != nullptr;
      if (run.errors[rank]) continue;
      for (std::size_t other = 0; other < inputs.size(); ++other) {
        ASSERT_TRUE(run.gathered[rank].by_rank[other].stream == coded_alone(inputs[other], other, options)) << seed;
      }
    }
    ASSERT_LE(run.seconds, 0.1);
  }
  EXPECT_GT(failures, 30u);
}

TEST(GatherContributions, allocates_nothing_in_the_steady_state) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers allocate";
#endif
  constexpr int kRanks = 4;
  for (const std::string_view codec : codecs()) {
    SCOPED_TRACE(codec);
    const auto inputs = inputs_for(parse_value_codec(codec), kRanks, 20000);
    SimWorld world({.ranks = kRanks});
    std::vector<Request<Contributions>> requests;
    requests.reserve(kRanks);
    const CallOptions options{.value_coding = parse_value_codec(codec)};
    const auto step = [&] {
      requests.clear();
      for (int rank = 0; rank < kRanks; ++rank) {
        requests.push_back(
            igather_contributions(world.communicator(rank), inputs[static_cast<std::size_t>(rank)], options));
      }
      for (Request<Contributions>& request : requests) (void)mean_of_senders(request.wait(), Clipping::median_norm);
    };
    for (int warm_up = 0; warm_up < 20; ++warm_up) step();
    const std::uint64_t before = allocation_count() + pool_stats().system_allocations;
    for (int i = 0; i < 10; ++i) step();
    EXPECT_EQ(allocation_count() + pool_stats().system_allocations - before, 0u);
  }
}

TEST(GatherContributions, costs_the_simulators_seconds) {
  for (const std::string_view name : {"gige", "ib_fdr"}) {
    const Network network = preset_network(name);
    for (const std::string_view codec : {"raw", "int8"}) {
      for (const double density : {0.001, 0.02, 1.0}) {
        for (const int ranks : {2, 8, 13}) {
          constexpr std::uint64_t kDimension = 1u << 22;
          const auto nnz = static_cast<std::uint64_t>(density * kDimension);
          const AnyStream input = AnyStream::phantom(ValueType::f32, kDimension, {0, kDimension},
                                                     density < 1 ? Layout::sparse : Layout::dense, nnz);
          const ValueCodec values = parse_value_codec(codec);
          const GatherRun run =
              run_gather(std::vector<AnyStream>(static_cast<std::size_t>(ranks), input), {.value_coding = values},
                         {.profile = network.profile(), .network = network});
          expect_no_errors(run.errors);
          CostInput cost{.ranks = ranks, .dimension = kDimension, .nnz = static_cast<double>(nnz)};
          cost.index_coding = kAuto;
          cost.coded_value_bytes = coded_value_bytes(values, ValueType::f32);
          cost.profile = network.profile();
          EXPECT_NEAR(gather_contributions_seconds(cost) / run.seconds, 1, 0.1)
              << name << ", " << codec << ", density " << density << ", P = " << ranks;
        }
      }
    }
  }
}

Contributions of(std::initializer_list<AnyStream> streams) {
  Contributions contributions;
  for (const AnyStream& stream : streams) contributions.by_rank.push_back({stream, l2_norm(stream)});
  return contributions;
}

AnyStream pairs(std::initializer_list<std::uint32_t> indices, std::initializer_list<float> values) {
  return Stream<float>::from_sorted(8, std::span<const std::uint32_t>(indices), std::span<const float>(values));
}

TEST(MeanOfSenders, divides_by_those_that_sent_an_index) {
  const Contributions three = of({pairs({1, 4}, {2, 6}), pairs({}, {}), pairs({4, 7}, {2, -5})});
  EXPECT_TRUE(mean_of_senders(three) == pairs({1, 4, 7}, {2, 4, -5}));
}

// Norms 3, 4, 12 and nothing: the median is 4, so that the third counts for a third.
TEST(MeanOfSenders, clips_to_the_median_norm_of_those_that_sent_something) {
  const Contributions four = of({pairs({0}, {3}), pairs({1}, {-4}), pairs({1, 2}, {0, 12}), pairs({}, {})});
  EXPECT_TRUE(mean_of_senders(four, Clipping::median_norm) == pairs({0, 1, 2}, {3, -2, 4}));
  // Of two middle norms the lower one.
  EXPECT_TRUE(mean_of_senders(of({pairs({0}, {2}), pairs({0}, {8})}), Clipping::median_norm) == pairs({0}, {2}));
  EXPECT_TRUE(mean_of_senders(of({pairs({}, {}), pairs({}, {})}), Clipping::median_norm) == pairs({}, {}));
}

TEST(MeanOfSenders, tells_what_it_cannot_average) {
  EXPECT_THROW((void)mean_of_senders(of({Stream<int>(4)})), Error);
  const Contributions infinite = of({pairs({0}, {std::numeric_limits<float>::infinity()}), pairs({1}, {1})});
  EXPECT_NO_THROW((void)mean_of_senders(infinite));
  EXPECT_THROW((void)mean_of_senders(infinite, Clipping::median_norm), Error);
}

}  // namespace
}  // namespace tulle::testing
