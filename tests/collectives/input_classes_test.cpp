// What auto learns stays with the class of input that taught it: sums of one length may be of ten entries or dense.
#include "collectives/input_classes.hpp"

#include <algorithm>
#include <set>

#include "collectives/harness.hpp"
#include "collectives/remembered.hpp"
#include "tulle/base/philox.hpp"
#include "tulle/comm/network.hpp"
#include "tulle/comm/threads.hpp"

namespace tulle::testing {
namespace {

constexpr std::uint64_t kDimension = 1u << 20;
constexpr std::uint64_t kTen = 10;

/// Sums of one length, one after the other, by the channel's memory.
struct Sums {
  int ranks = 8;
  std::string_view network = "gige";
  bool tells_density = false;
  std::string_view algorithm = kAuto;

  /// What each call took on the slowest rank.
  std::vector<double> seconds(const std::vector<std::uint64_t>& nnz_of_calls) const {
    const Network wires = preset_network(network);
    SimWorld world({.ranks = ranks, .network = wires});
    std::vector<double> seconds(nnz_of_calls.size());
    world.run([&](Communicator& communicator) -> Task<> {
      communicator.set_profile(wires.profile());
      for (std::size_t call = 0; call < nnz_of_calls.size(); ++call) {
        const std::uint64_t nnz = nnz_of_calls[call];
        CallOptions options{.algorithm = algorithm, .awaited_at_once = true};
        if (tells_density) options.density = static_cast<double>(nnz) / kDimension;
        const Layout layout = nnz == kDimension ? Layout::dense : Layout::sparse;
        const double begin = communicator.engine()->transport().now();
        auto request = start_remembered(
            communicator, AnyStream::phantom(ValueType::f32, kDimension, {0, kDimension}, layout, nnz), options);
        co_await request;
        seconds[call] = std::max(seconds[call], communicator.engine()->transport().now() - begin);
      }
    });
    return seconds;
  }

  /// Of the best row, called by its name and alone.
  double best(std::uint64_t nnz) const {
    double best = 1e9;
    for (const Algorithm& row : registry()) {
      if (row.kind != OperationKind::allreduce || row.takes != Takes::stream || row.needs != Needs::messages) continue;
      Sums alone = *this;
      alone.algorithm = row.name;
      best = std::min(best, alone.seconds({nnz, nnz}).back());
    }
    return best;
  }
};

// A call may try a row, or come where nobody expects it: it takes twice the best at most, and the median hardly more.
void expect_near_the_best(const Sums& sums, const std::vector<std::uint64_t>& calls) {
  const std::vector<double> seconds = sums.seconds(calls);
  for (const std::uint64_t nnz : std::set<std::uint64_t>(calls.begin(), calls.end())) {
    SCOPED_TRACE(::testing::Message() << sums.network << ", P = " << sums.ranks << ", " << nnz << " values");
    const double best = sums.best(nnz);
    std::vector<double> shares;
    for (std::size_t call = 0; call < calls.size(); ++call) {
      if (calls[call] == nnz) shares.push_back(seconds[call] / best);
    }
    EXPECT_LE(std::ranges::max(shares), 2.0);
    std::vector<double> later(shares.begin() + 2, shares.end());
    std::ranges::sort(later);
    EXPECT_LE(later[later.size() / 2], 1.1);
  }
}

TEST(InputClasses, SparseSumsAreFastBesideDenseOnesOfTheirLength) {
  for (const bool tells_density : {false, true}) {
    for (const int ranks : {2, 8}) {
      const Sums sums{.ranks = ranks, .tells_density = tells_density};
      expect_near_the_best(sums, {kTen, kTen, kTen, kTen, kDimension, kTen, kDimension, kTen, kDimension, kTen, kTen,
                                  kTen, kTen, kDimension, kTen});
      expect_near_the_best(sums, {kDimension, kDimension, kDimension, kTen, kDimension, kTen, kDimension, kTen,
                                  kDimension, kTen, kDimension, kTen});
      expect_near_the_best(sums, {kDimension, kDimension / 100, kTen, kDimension, kDimension / 100, kTen, kDimension,
                                  kDimension / 100, kTen, kDimension, kDimension / 100, kTen});
    }
  }
}

TEST(InputClasses, FirstCallsKnowWhatTheRanksBring) {
  for (const std::string_view network : {"gige", "10gbe", "aries"}) {
    for (const std::uint64_t nnz : {kTen, kDimension / 1000, kDimension / 10, kDimension / 2, kDimension}) {
      expect_near_the_best({.ranks = 4, .network = network}, std::vector<std::uint64_t>(24, nnz));
    }
  }
}

// Ranks bring different amounts in any order; all choose the same, or the operation would fail.
TEST(InputClasses, RanksAgreeWhateverEachOfThemBrings) {
  constexpr std::uint64_t kLength = 5000;
  for (const int ranks : {1, 2, 3, 5}) {
    run_threads(ranks, [&](Communicator& communicator) {
      communicator.set_default_deadline(20);
      for (std::uint64_t call = 0; call < 120; ++call) {
        std::vector<AnyStream> inputs;
        for (int rank = 0; rank < ranks; ++rank) {
          Philox random(call * 8 + static_cast<std::uint64_t>(rank));
          const double density = std::pow(10.0, -4.0 * random.uniform() * (call % 3 == 0 ? 0 : 1));
          const auto nnz = static_cast<std::uint64_t>(density * kLength);
          inputs.push_back(
              synthetic_stream({.type = ValueType::i64, .dimension = kLength, .nnz = nnz, .rank = rank, .seed = call}));
          if (random.uniform() < 0.3) inputs.back() = to_dense(inputs.back(), Op::sum());
        }
        AnyStream mine = inputs[static_cast<std::size_t>(communicator.rank())];
        CallOptions options;
        if (call % 7 == 5) options.algorithm = "ssar_recursive_double";
        if (call % 11 == 6) options.density = 0.01;
        if (call % 13 == 7) options.reproducible = true;
        allreduce(communicator, mine, options);
        EXPECT_TRUE(to_dense(mine, Op::sum()) ==
                    to_dense(reduce_many(inputs, Op::sum(), nullptr, LayoutChoice::dense), Op::sum()))
            << "call " << call;
      }
    });
  }
}

TEST(InputClasses, ExpectWhatFollowedBefore) {
  InputClasses classes;
  const auto call = [&](double nnz) {
    Outcome outcome;
    outcome.contributed = static_cast<std::uint64_t>(nnz);
    outcome.stream =
        AnyStream::phantom(ValueType::f32, kDimension, {0, kDimension}, Layout::sparse, outcome.contributed);
    const CallOptions options;
    CostInput shape;
    shape.ranks = 1;
    shape.dimension = kDimension;
    classes.learn(classes.expected(), false, {registry()[0], true, options, shape, 1e-3, 0}, outcome);
  };
  EXPECT_EQ(classes.expected(), nullptr);
  call(10);
  EXPECT_EQ(classes.expected(), nullptr);
  call(12);
  EXPECT_EQ(classes.expected(), &classes.of(11));
  call(1e6);
  EXPECT_EQ(classes.expected(), nullptr);  // what follows such a call nobody has seen
  call(10);
  call(10);
  call(1e6);
  EXPECT_EQ(classes.expected(), &classes.of(10));
  call(10);
  EXPECT_EQ(classes.expected(), &classes.of(10));  // two of them come between
  call(10);
  EXPECT_EQ(classes.expected(), &classes.of(1e6));
  EXPECT_NE(&classes.of(10), &classes.of(1e6));
  EXPECT_NE(&classes.told(1), &classes.told(1e-5));
  EXPECT_EQ(&classes.told(0.011), &classes.told(0.09));
}

}  // namespace
}  // namespace tulle::testing
