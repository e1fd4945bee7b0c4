// oktopk over a training loop: gradients that change from call to call, are heavy-tailed and partly shared between
// ranks, over accumulators that keep what was not delivered. Its words, depth and messages, counted in every call.
#include <bit>

#include "collectives/accumulators.hpp"
#include "collectives/numbers.hpp"
#include "collectives/patterns/pieces.hpp"

namespace tulle::testing {
namespace {

double gaussian(Philox& random) {
  const double radius = std::sqrt(-2 * std::log(1 - random.uniform()));
  return radius * std::cos(2 * 3.14159265358979323846 * random.uniform());
}

struct Training {
  int ranks = 8;
  std::uint64_t k_per_rank = 24;
  std::size_t dimension_per_rank = 400;
  std::uint64_t seed = 1;
  double shared = 0.5;      // of the variance before it is cubed
  double growth = 1;        // of the gradient's scale, by call
  std::size_t crowded = 1;  // large values lie in this part of the vector, which moves on by call
  std::uint64_t k() const { return k_per_rank * static_cast<std::uint64_t>(ranks); }
};

// Adds the gradient of one call.
void add_gradients(const Training& training, std::uint64_t call, Accumulators<float>& accumulators) {
  const std::size_t dimension = accumulators.front().size();
  Philox common(training.seed, 1000 * call);
  std::vector<double> shared(dimension);
  for (double& value : shared) value = gaussian(common);
  const double scale = std::pow(training.growth, static_cast<double>(call));
  for (std::size_t rank = 0; rank < accumulators.size(); ++rank) {
    Philox own(training.seed, 1000 * call + 1 + rank);
    for (std::size_t i = 0; i < dimension; ++i) {
      const double drawn = std::sqrt(training.shared) * shared[i] + std::sqrt(1 - training.shared) * gaussian(own);
      const bool is_large = (i * training.crowded / dimension + call / 10) % training.crowded == 0;
      accumulators[rank][i] += static_cast<float>(scale * drawn * drawn * drawn * (is_large ? 1 : 0.01));
    }
  }
}

struct Bill {
  double words = 0;  // through the busiest port, in the busier direction
  double messages = 0;
  double depth = 0;
  double delivered = 0;
};

Bill bill_of(const SimRun& run) {
  Bill bill;
  for (const Outcome& outcome : run.outcomes) {
    const Counts& counts = outcome.counts;
    bill.words = std::max({bill.words, static_cast<double>(counts.data_bytes_sent) / 4,
                           static_cast<double>(counts.data_bytes_received) / 4});
    bill.messages = std::max(bill.messages, static_cast<double>(counts.messages_sent));
    bill.depth = std::max<double>(bill.depth, counts.depth);
  }
  bill.delivered = static_cast<double>(run.outcomes[0].stream.nnz());
  return bill;
}

std::vector<Bill> train(const Training& training, int calls) {
  const auto p = static_cast<std::size_t>(training.ranks);
  Accumulators<float> accumulators(p, std::vector<float>(training.dimension_per_rank * p));
  std::vector<AlgorithmState> states(p);
  std::vector<Bill> bills;
  for (int call = 0; call < calls; ++call) {
    add_gradients(training, static_cast<std::uint64_t>(call), accumulators);
    const SimRun run = reduce_accumulators(OperationKind::allreduce, accumulators,
                                           {.algorithm = "oktopk", .index_coding = "raw", .k = training.k()}, &states);
    expect_no_errors(run.errors);
    bills.push_back(bill_of(run));
  }
  return bills;
}

struct Case {
  std::string name;
  Training training;
};
void PrintTo(const Case& tested, std::ostream* out) { *out << tested.name; }
class OktopkTraining : public ::testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(Simulated, OktopkTraining,
                         ::testing::Values(Case{"P4", {.ranks = 4}}, Case{"P5", {.ranks = 5}}, Case{"P8", {.ranks = 8}},
                                           Case{"P16", {.ranks = 16}},
                                           Case{"P33", {.ranks = 33, .dimension_per_rank = 200}},
                                           Case{"P8_all_shared", {.ranks = 8, .shared = 0.98}},
                                           Case{"P8_nothing_shared", {.ranks = 8, .shared = 0}},
                                           Case{"P8_growing", {.ranks = 8, .growth = 1.3}},
                                           Case{"P8_shrinking", {.ranks = 8, .growth = 0.8}},
                                           Case{"P8_crowded", {.ranks = 8, .crowded = 8}},
                                           Case{"P16_crowded", {.ranks = 16, .crowded = 5}}),
                         [](const auto& info) { return info.param.name; });

TEST_P(OktopkTraining, never_sends_more_than_the_paper_says) {
  const Training& training = GetParam().training;
  const double p = training.ranks, k = static_cast<double>(training.k());
  const double rounds = std::bit_width(static_cast<unsigned>(training.ranks - 1));
  const std::vector<Bill> bills = train(training, 80);
  double words = 0, most_words = 0, delivered = 0, most_delivered = 0, most_depth = 0, most_messages = 0;
  for (const Bill& bill : bills) {
    words += bill.words / static_cast<double>(bills.size());
    delivered += bill.delivered / static_cast<double>(bills.size());
    most_words = std::max(most_words, bill.words);
    most_delivered = std::max(most_delivered, bill.delivered);
    most_depth = std::max(most_depth, bill.depth);
    most_messages = std::max(most_messages, bill.messages);
  }
  RecordProperty("words_by_k", std::to_string(words / k));
  RecordProperty("most_words_by_k", std::to_string(most_words / k));
  RecordProperty("delivered_by_k", std::to_string(delivered / k));
  EXPECT_LE(most_words, 6 * k * (p - 1) / p);
  EXPECT_LE(most_delivered, k);
  EXPECT_GE(delivered, 0.5 * k);
  EXPECT_LE(most_depth, 2 + 3 * rounds);
  EXPECT_LE(most_messages, 2 * p + 3 * rounds);
}

// Thresholds are searched for every 32 calls; the local one follows sooner where it lets too few or too many pass.
TEST(Oktopk, finds_a_local_threshold_anew_when_it_has_aged) {
  Accumulators<float> accumulators(4, std::vector<float>(1600));
  std::vector<AlgorithmState> states(4);
  const CallOptions options{.algorithm = "oktopk", .k = 100};
  const auto threshold_after = [&](std::uint64_t call, float scale) {
    for (auto& values : accumulators) std::ranges::fill(values, 0.0f);
    add_gradients({.ranks = 4}, call, accumulators);
    for (auto& values : accumulators) {
      for (float& value : values) value *= scale;
    }
    // A constant search period: a global threshold that has aged must not hide what the local one does.
    states[0].oktopk.threshold_age = states[1].oktopk.threshold_age = 1;
    states[2].oktopk.threshold_age = states[3].oktopk.threshold_age = 1;
    expect_no_errors(reduce_accumulators(OperationKind::allreduce, accumulators, options, &states).errors);
    return states[2].oktopk.local_threshold;
  };
  const double first = threshold_after(0, 1);
  EXPECT_EQ(threshold_after(1, 1), first);
  EXPECT_NEAR(threshold_after(2, 0.01f) / first, 0.01, 0.005);
  EXPECT_NEAR(threshold_after(3, 10) / first, 10, 5);
}

// The mass that 60 calls of a row deliver.
double delivered_mass(const Training& training, std::string_view row) {
  const auto p = static_cast<std::size_t>(training.ranks);
  Accumulators<float> accumulators(p, std::vector<float>(training.dimension_per_rank * p));
  std::vector<AlgorithmState> states(p);
  double mass = 0;
  for (std::uint64_t call = 0; call < 60; ++call) {
    add_gradients(training, call, accumulators);
    const SimRun run = reduce_accumulators(OperationKind::allreduce, accumulators,
                                           {.algorithm = row, .k = training.k(), .step = call}, &states);
    expect_no_errors(run.errors);
    for (const float value : Stream<float>(run.outcomes[0].stream).to_vector()) mass += std::abs(value);
  }
  return mass;
}

TEST_P(OktopkTraining, delivers_as_much_as_a_row_that_selects_exactly_in_every_call) {
  const double share = delivered_mass(GetParam().training, "oktopk") / delivered_mass(GetParam().training, "spardl");
  RecordProperty("share_of_spardl", std::to_string(share));
  EXPECT_GT(share, 0.8);
}

TEST(Pieces, keep_their_sums_and_order_when_cut_down_or_balanced) {
  Philox random(5);
  for (int trial = 0; trial < 200; ++trial) {
    patterns::Sizes sizes(1 + random.below(12));
    for (std::uint64_t& size : sizes) size = random.below(3) == 0 ? 0 : random.below(50);
    const std::uint64_t all = patterns::total_of(sizes), wanted = random.below(all + 1);
    const patterns::Sizes scaled = patterns::scaled_to(sizes, wanted);
    EXPECT_EQ(patterns::total_of(scaled), wanted);
    std::vector<std::uint64_t> held(sizes.size());
    const patterns::Balance balance(sizes);
    for (std::size_t rank = 0; rank < sizes.size(); ++rank) {
      EXPECT_LE(scaled[rank], sizes[rank]);
      std::uint64_t next = 0;
      for (const patterns::Balance::Piece& piece : balance.pieces_of(static_cast<int>(rank))) {
        EXPECT_EQ(piece.first, std::exchange(next, piece.first + piece.count));
        held[static_cast<std::size_t>(piece.to)] += piece.count;
      }
      EXPECT_EQ(next, sizes[rank]);
    }
    for (std::size_t rank = 0; rank < sizes.size(); ++rank) {
      EXPECT_EQ(held[rank], patterns::equal_pieces(all, sizes.size())[rank]);
    }
  }
}

TEST(Pieces, load_ports_as_counted_by_hand) {
  // Three ranks: rounds at distances 1 and 2, one piece each; around the ring, all but the predecessor's.
  const patterns::Sizes sizes = {6, 0, 3};
  EXPECT_EQ(patterns::load_as_they_are(sizes).sent, (PoolVector<std::uint64_t>{12, 3, 9}));
  EXPECT_EQ(patterns::load_as_they_are(sizes).received, (PoolVector<std::uint64_t>{3, 9, 6}));
  // Balanced: rank 0 hands three to rank 1, then each port carries two of three equal pieces.
  EXPECT_EQ(patterns::load_balanced(sizes).sent, (PoolVector<std::uint64_t>{9, 6, 6}));
  EXPECT_EQ(patterns::load_balanced(sizes).received, (PoolVector<std::uint64_t>{6, 9, 6}));
  EXPECT_EQ(patterns::largest_that_fits(2, 100, [](std::uint64_t n) { return n <= 37; }), 37u);
  EXPECT_EQ(patterns::largest_that_fits(2, 100, [](std::uint64_t) { return false; }), 2u);
}

// What a peer that is broken, or not one of ours, may send in place of sizes and cuts.
TEST(Numbers, that_make_no_sense_are_told_with_the_rank_that_sent_them) {
  const auto expect_rejected = [](auto read, const char* words) {
    try {
      read();
      ADD_FAILURE() << "was believed: " << words;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::bad_message);
      EXPECT_EQ(error.peer(), 3);
      EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
    }
  };
  const auto dense = [](std::vector<std::int64_t> numbers) {
    return Part{Stream<std::int64_t>::dense(numbers), 0, {}};
  };
  const Part sparse{to_sparse(dense({0, 7}).stream, Op::sum()), 0, {}};
  EXPECT_EQ(numbers_of(dense({4, 5}), 3, 2), (PoolVector<std::int64_t>{4, 5}));
  expect_rejected([&] { numbers_of(dense({4}), 3, 2); }, "2 numbers");
  expect_rejected([&] { numbers_of(dense({4, 5, 6}), 3, 2); }, "2 numbers");
  expect_rejected([&] { numbers_of(sparse, 3, 2); }, "2 numbers");
  EXPECT_EQ(count_of(10, 3, 10, "a size"), 10u);
  expect_rejected([] { count_of(-1, 3, 10, "a size"); }, "a size is -1");
  expect_rejected([] { count_of(11, 3, 10, "a size"); }, "a size is 11");
  expect_rejected([] { count_of(std::numeric_limits<std::int64_t>::max(), 3, 10, "a size"); }, "expected 0 to 10");
  const auto require = [](std::vector<std::int64_t> cuts) { require_cuts(cuts, 3, 100); };
  EXPECT_NO_THROW(require({0, 50, 50, 100}));
  expect_rejected([&] { require({0, -5}); }, "-5");
  expect_rejected([&] { require({0, 101}); }, "101");
  expect_rejected([&] { require({50, 49}); }, "follows 50");
}

}  // namespace
}  // namespace tulle::testing
