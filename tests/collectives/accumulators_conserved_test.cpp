// Nothing is lost, and whoever shares a loss keeps its share: integers of any value, all kinds of teams, all residual
// modes.
#include "collectives/accumulators.hpp"

namespace tulle::testing {
namespace {

/// Values that no number of sharers divides: small odd ones, and some of the whole range of V.
template <class V>
Accumulators<V> awkward_accumulators(int ranks, std::size_t dimension, std::uint64_t seed) {
  Accumulators<V> all(static_cast<std::size_t>(ranks), std::vector<V>(dimension));
  Philox random(seed);
  for (auto& values : all) {
    for (V& value : values) {
      const std::uint64_t small = 2 * random.below(20) + 1;
      value = static_cast<V>(random.below(8) == 0 ? random() : random.below(2) == 0 ? small : 0 - small);
    }
    values[random.below(dimension)] = std::numeric_limits<V>::min();
  }
  return all;
}

struct Teams {
  int count;
  std::string_view gather;
};

std::vector<Teams> teams_of(const Algorithm& row, int ranks) {
  std::vector<Teams> all = {{1, "auto"}};
  for (int teams = 2; teams <= ranks && row.name == "spardl"; ++teams) {
    if (ranks % teams != 0) continue;
    all.push_back({teams, "b_sag"});
    if ((teams & (teams - 1)) == 0) all.push_back({teams, "r_sag"});
  }
  return all;
}

class EveryConservingRow : public ::testing::TestWithParam<std::tuple<const Algorithm*, int>> {
 protected:
  template <class V>
  void expect_integers_conserved() const {
    const auto& [row, ranks] = GetParam();
    for (const Teams& teams : teams_of(*row, ranks)) {
      for (std::uint64_t seed = 1; seed <= 6; ++seed) {
        SCOPED_TRACE(::testing::Message() << teams.count << " teams, " << teams.gather << ", seed " << seed);
        auto accumulators = awkward_accumulators<V>(ranks, 61, seed);
        const auto before = sum_of(accumulators);
        const SimRun run = reduce_accumulators(
            row->kind, accumulators,
            {.algorithm = row->name, .k = 5 + 3 * seed, .teams = teams.count, .team_gather = teams.gather});
        expect_no_errors(run.errors);
        expect_conserved(row->kind, before, run, accumulators);
      }
    }
  }
};
INSTANTIATE_TEST_SUITE_P(Registry, EveryConservingRow,
                         ::testing::Combine(::testing::ValuesIn(rows_on_accumulators()),
                                            ::testing::Values(2, 3, 4, 6, 8, 16)),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param)->name) + "_on_" +
                                  std::to_string(std::get<1>(info.param)) + "_ranks";
                         });

TEST_P(EveryConservingRow, loses_no_unit_of_i32) { expect_integers_conserved<std::int32_t>(); }
TEST_P(EveryConservingRow, loses_no_unit_of_i64) { expect_integers_conserved<std::int64_t>(); }

// What a rank says to have taken is where its accumulator changed, with the values that were there.
TEST_P(EveryConservingRow, says_what_left_each_accumulator) {
  const auto& [row, ranks] = GetParam();
  for (const ResidualMode mode : {ResidualMode::global, ResidualMode::partial, ResidualMode::local}) {
    for (const Teams& teams : teams_of(*row, ranks)) {
      SCOPED_TRACE(::testing::Message() << to_string(mode) << ", " << teams.count << " teams, " << teams.gather);
      const auto before = awkward_accumulators<std::int64_t>(ranks, 61, 4);
      auto after = before;
      const SimRun run = reduce_accumulators(
          row->kind, after,
          {.algorithm = row->name, .k = 14, .residual = mode, .teams = teams.count, .team_gather = teams.gather});
      expect_no_errors(run.errors);
      std::uint64_t all_taken = 0;
      for (std::size_t rank = 0; rank < before.size(); ++rank) {
        const AnyStream& taken = run.outcomes[rank].taken;
        taken.validate();
        all_taken += taken.nnz();
        std::vector<bool> has_left(61);
        for (std::uint64_t i = 0; i < taken.nnz(); ++i) {
          const std::uint64_t index = taken.index_at(i);
          has_left[index] = true;
          EXPECT_EQ(taken.values_buffer().as<std::int64_t>()[i], before[rank][index]);
        }
        // Weaker modes take a value out whole or leave it; `global` may add what others have lost.
        for (std::size_t i = 0; i < 61 && mode != ResidualMode::global; ++i) {
          ASSERT_EQ(after[rank][i], has_left[i] ? 0 : before[rank][i]) << "rank " << rank << ", index " << i;
        }
      }
      EXPECT_GT(all_taken, 0u);
    }
  }
}

// What each residual mode loses of every index, over all ranks. A call's result does not depend on the mode.
struct Losses {
  std::vector<std::int64_t> arrived;
  std::vector<std::int64_t> lost;
  std::vector<std::int64_t> taken;  // as the ranks tell
  std::vector<bool> is_in_result;
};

Losses losses_of(const Algorithm& row, int ranks, const CallOptions& options) {
  auto accumulators = make_accumulators<std::int64_t>(ranks, 200, 3);
  Losses losses{{}, sum_of(accumulators), std::vector<std::int64_t>(200), std::vector<bool>(200)};
  const SimRun run = reduce_accumulators(row.kind, accumulators, options);
  expect_no_errors(run.errors);
  losses.arrived = delivered_sum<std::int64_t>(row.kind, run);
  const auto after = sum_of(accumulators);
  for (std::size_t i = 0; i < 200; ++i) losses.lost[i] -= losses.arrived[i] + after[i];
  for (const Outcome& outcome : run.outcomes) {
    const auto values = Stream<std::int64_t>(outcome.taken).to_vector();
    for (std::size_t i = 0; i < 200; ++i) losses.taken[i] += values[i];
    for (const std::uint32_t index : outcome.delivered.as<std::uint32_t>()) losses.is_in_result[index] = true;
  }
  return losses;
}

TEST_P(EveryConservingRow, loses_in_each_residual_mode_what_that_mode_says) {
  const auto& [row, ranks] = GetParam();
  for (const Teams& teams : teams_of(*row, ranks)) {
    SCOPED_TRACE(::testing::Message() << teams.count << " teams, " << teams.gather);
    CallOptions options{.algorithm = row->name, .k = 30, .teams = teams.count, .team_gather = teams.gather};
    const Losses global = losses_of(*row, ranks, options);
    options.residual = ResidualMode::partial;
    const Losses partial = losses_of(*row, ranks, options);
    options.residual = ResidualMode::local;
    const Losses local = losses_of(*row, ranks, options);
    EXPECT_EQ(partial.arrived, global.arrived);
    EXPECT_EQ(local.arrived, global.arrived);
    EXPECT_EQ(global.lost, std::vector<std::int64_t>(200));
    // Whoever does not learn the result counts everything it sent as delivered: then both lose what was dropped.
    if (row->kind != OperationKind::allreduce) {
      EXPECT_EQ(local.lost, partial.lost);
      continue;
    }
    for (std::size_t i = 0; i < 200; ++i) {
      const bool is_in_result = global.is_in_result[i];
      ASSERT_EQ(partial.lost[i], is_in_result ? local.taken[i] - local.arrived[i] : 0) << "index " << i;
      ASSERT_EQ(local.lost[i], is_in_result ? partial.lost[i] : local.taken[i]) << "index " << i;
    }
  }
}

// The rows that select on the way do lose something where they may.
TEST(ResidualModes, differ_where_values_are_dropped_on_the_way) {
  for (const std::string_view name : {"spardl", "gtopk", "oktopk"}) {
    const Algorithm& row = find_algorithm(OperationKind::allreduce, name);
    const auto magnitude = [](const Losses& losses) {
      std::int64_t sum = 0;
      for (const std::int64_t value : losses.lost) sum += std::abs(value);
      return sum;
    };
    const auto lost = [&](ResidualMode mode) {
      return magnitude(losses_of(row, 8, {.algorithm = name, .k = 30, .residual = mode}));
    };
    EXPECT_GT(lost(ResidualMode::local), lost(ResidualMode::partial)) << name;
    if (name == "oktopk") continue;  // its owners drop whole sums, which come back
    EXPECT_GT(lost(ResidualMode::partial), 0) << name;
  }
}

TEST(BSag, loses_nothing_of_what_value_codings_leave) {
  for (const int teams : {2, 4, 8}) {
    for (const int ranks : {8, 16}) {
      for (const ValueCoding coding : {ValueCoding::qsgd, ValueCoding::f16, ValueCoding::one_bit_mqe}) {
        SCOPED_TRACE(::testing::Message() << "d = " << teams << ", P = " << ranks);
        auto accumulators = make_accumulators<double>(ranks, 600);
        for (auto& values : accumulators) {
          for (double& value : values) value /= 5040 * 16;
        }
        const auto before = sum_of(accumulators);
        const SimRun run = reduce_accumulators(OperationKind::allreduce, accumulators,
                                               {.algorithm = "spardl",
                                                .value_coding = {.coding = coding, .bucket = 64},
                                                .k = 96,
                                                .teams = teams,
                                                .team_gather = "b_sag"});
        expect_no_errors(run.errors);
        const auto arrived = delivered_sum<double>(OperationKind::allreduce, run), stayed = sum_of(accumulators);
        for (std::size_t i = 0; i < before.size(); ++i) ASSERT_NEAR(arrived[i] + stayed[i], before[i], 1e-9) << i;
        for (const Outcome& outcome : run.outcomes) ASSERT_TRUE(outcome.stream == run.outcomes[0].stream);
      }
    }
  }
}

// Ranks 0 and 1 drop the 7 at index 1 between them; then ranks 2 and 3 bring what puts that index into the result.
TEST(RSag, gives_each_sharer_of_a_drop_its_share) {
  for (const int sign : {1, -1}) {
    Accumulators<std::int64_t> all = {{10, 1}, {0, 7}, {0, 8}, {0, 8}};
    for (auto& values : all) {
      for (std::int64_t& value : values) value *= sign;
    }
    const SimRun run = reduce_accumulators(OperationKind::allreduce, all, {.algorithm = "spardl", .k = 1, .teams = 4});
    expect_no_errors(run.errors);
    EXPECT_EQ(delivered_sum<std::int64_t>(OperationKind::allreduce, run), (std::vector<std::int64_t>{0, sign * 16}));
    EXPECT_EQ(all, (Accumulators<std::int64_t>{{sign * 10, sign * (1 + 4)}, {0, sign * 3}, {0, 0}, {0, 0}}));
  }
}

}  // namespace
}  // namespace tulle::testing
