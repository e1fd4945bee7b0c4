// What auto learns: times that all ranks agree on, rows that are tried, left and taken.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <set>

#include "collectives/experience.hpp"
#include "collectives/harness.hpp"
#include "tulle/comm/network.hpp"

namespace tulle::testing {
namespace {

bool is_row_of_auto(const Algorithm& row) {
  return row.kind == OperationKind::allreduce && row.takes == Takes::stream && row.needs == Needs::messages;
}

/// Calls in a row of one allreduce with the states that the ranks keep; what ran, by call.
struct Job {
  SimOptions sim;
  Profile believed;  ///< what the ranks take the network for
  CallOptions options;
  std::vector<AlgorithmState> states;
  double elapsed_seconds = 0;  ///< of the last run

  std::vector<std::string> run(const std::vector<AnyStream>& inputs, int calls) {
    sim.ranks = static_cast<int>(inputs.size());
    states.resize(inputs.size());
    SimWorld world(sim);
    std::vector<std::string> ran(static_cast<std::size_t>(calls));
    const Program program = [&](Communicator& communicator) -> Task<> {
      const auto rank = static_cast<std::size_t>(communicator.rank());
      communicator.set_profile(believed);
      for (std::string& name : ran) {
        auto request = iallreduce(communicator, inputs[rank], options, &states[rank]);
        const Outcome outcome = co_await request;
        if (rank == 0) name = outcome.algorithm;
      }
    };
    world.run(program);
    elapsed_seconds = world.elapsed_seconds();
    return ran;
  }
};

double seconds_of(std::string_view row, const std::vector<AnyStream>& inputs, const SimOptions& sim,
                  const Profile& believed) {
  Job job{.sim = sim, .believed = believed, .options = {.algorithm = row}, .states = {}};
  job.run(inputs, 2);
  return job.states[0].experience.last_seconds;
}

// The one ratio that is known after three calls, by rank, where rank `slowest` says that the second took a second.
std::vector<float> ratios_learned(const Algorithm& row, const std::vector<AnyStream>& inputs, std::size_t slowest) {
  Job job{.sim = {}, .believed = {}, .options = {.algorithm = row.name}, .states = {}};
  job.run(inputs, 2);
  for (AlgorithmState& state : job.states) state.experience.last_seconds = 0.25;
  job.states[slowest].experience.last_seconds = 1;
  job.run(inputs, 1);
  std::vector<float> ratios;
  for (const AlgorithmState& state : job.states) ratios.push_back(state.experience.rows.at(0).ratios[0]);
  return ratios;
}

TEST(Auto, times_travel_with_frames_and_all_ranks_learn_the_slowest) {
  for (const Algorithm& row : registry()) {
    if (!is_row_of_auto(row)) continue;
    for (const std::size_t ranks : {2, 3, 4, 5, 6, 7, 8, 9}) {
      const auto inputs = make_inputs(static_cast<int>(ranks), {.dimension = 4096, .nnz = 100});
      const std::vector<float> expected(ranks, ratios_learned(row, inputs, 0).at(0));
      EXPECT_GT(expected[0], 0);
      for (std::size_t slowest = 0; slowest < ranks; ++slowest) {
        EXPECT_EQ(ratios_learned(row, inputs, slowest), expected)
            << row.name << ", slowest " << slowest << " of " << ranks;
      }
    }
  }
}

// The ranks believe that messages are dear and take recursive doubling; in truth bytes are, and sums grow.
const SimOptions kBytesAreDear{.profile = {.alpha_seconds = 1e-6, .beta_seconds_per_byte = 1e-6}};
const Profile kMessagesAreDear{.alpha_seconds = 5e-3, .beta_seconds_per_byte = 1e-6};

// What most of the last calls ran: any one of them may be a trial.
std::string usual_row(std::span<const std::string> ran) {
  std::map<std::string, int> calls;
  for (const std::string& row : ran.last(50)) calls[row] += 1;
  return std::ranges::max_element(calls, {}, [](const auto& entry) { return entry.second; })->first;
}

TEST(Auto, leaves_a_row_for_one_that_turns_out_to_be_faster) {
  const auto inputs = make_inputs(16, {.dimension = 1u << 14, .nnz = 3500});
  const auto seconds = [&](std::string_view row) { return seconds_of(row, inputs, kBytesAreDear, kMessagesAreDear); };
  double least = seconds("ssar_recursive_double");
  for (const Algorithm& row : registry()) {
    if (is_row_of_auto(row)) least = std::min(least, seconds(row.name));
  }
  Job job{.sim = kBytesAreDear, .believed = kMessagesAreDear, .options = {}, .states = {}};
  const std::vector<std::string> ran = job.run(inputs, 400);
  EXPECT_EQ(ran.front(), "ssar_recursive_double");
  EXPECT_GT(seconds(ran.front()), 1.5 * least);
  EXPECT_LT(seconds(usual_row(ran)), 1.05 * least) << usual_row(ran);
}

TEST(Auto, reproducible_calls_ignore_what_was_learned) {
  const auto inputs = make_inputs(16, {.dimension = 1u << 14, .nnz = 3500});
  Job job{.sim = kBytesAreDear, .believed = kMessagesAreDear, .options = {}, .states = {}};
  const std::vector<std::string> ran = job.run(inputs, 400);
  ASSERT_NE(usual_row(ran), ran.front());
  job.options.reproducible = true;
  for (const std::string& row : job.run(inputs, 10)) EXPECT_EQ(row, ran.front());
}

// Costs must be corrected for the overlap that there is: corrected twice, recursive doubling would win.
TEST(Auto, stays_with_the_best_row_where_ranks_have_the_same_indices) {
  const Profile slow{.alpha_seconds = 3e-5, .beta_seconds_per_byte = 8e-9};
  const SimOptions sim{.profile = slow};
  const auto inputs = make_inputs(16, {.dimension = 1u << 17, .nnz = 5243, .overlap = Overlap::identical});
  double least = seconds_of("ssar_split_allgather", inputs, sim, slow);
  for (const Algorithm& row : registry()) {
    if (is_row_of_auto(row)) least = std::min(least, seconds_of(row.name, inputs, sim, slow));
  }
  Job job{.sim = sim, .believed = slow, .options = {.index_coding = "raw"}, .states = {}};
  const std::vector<std::string> ran = job.run(inputs, 300);
  EXPECT_LT(seconds_of(usual_row(ran), inputs, sim, slow), 1.05 * least) << usual_row(ran);
}

// All ranks hold the same 3 %: spread evenly, they would fill four tenths, for which a dense result is the better
// guess. Its zeros tell that they do not.
TEST(Auto, learns_from_the_zeros_of_a_dense_result) {
  const Profile quick{.alpha_seconds = 1.5e-6, .beta_seconds_per_byte = 0.16e-9};
  const SimOptions sim{.profile = quick};
  const auto inputs = make_inputs(16, {.dimension = 1u << 17, .nnz = 3932, .overlap = Overlap::identical});
  Job job{.sim = sim, .believed = quick, .options = {.algorithm = kAutoSparse, .density = 0.03}, .states = {}};
  const std::vector<std::string> ran = job.run(inputs, 2);
  EXPECT_EQ(ran.front(), "dsar_split_allgather");
  EXPECT_NEAR(job.states[0].result_nnz, 3932, 0.3 * 3932);
  EXPECT_LT(seconds_of(ran.back(), inputs, sim, quick), 0.8 * seconds_of(ran.front(), inputs, sim, quick))
      << ran.back();
}

/// A training loop of which the model knows the network, but not how fast the machine is.
struct Loop {
  std::string_view network;
  int ranks;
  double slowness;                ///< how many times as long as believed everything takes
  std::vector<double> densities;  ///< of the calls
  bool tells_density;

  static constexpr std::uint64_t kDimension = 1u << 20;

  Profile believed() const { return preset_network(network).profile(); }
  SimOptions sim() const {
    Network wires = preset_network(network);
    wires.between_nodes.alpha_seconds *= slowness;
    wires.between_nodes.beta_seconds_per_byte *= slowness;
    for (int rank = 0; rank < ranks; ++rank) wires.stragglers.push_back({rank, slowness});
    return {.ranks = ranks, .network = wires};
  }

  /// What the calls from the third on take together, as a multiple of the best row for each.
  double overhead() const {
    Job job{.sim = sim(), .believed = believed(), .options = {}, .states = {}};
    double spent = 0, least = 0;
    for (std::size_t call = 0; call < densities.size(); ++call) {
      const auto nnz = static_cast<std::uint64_t>(densities[call] * kDimension);
      const std::vector<AnyStream> inputs(
          static_cast<std::size_t>(ranks),
          AnyStream::phantom(ValueType::f32, kDimension, {0, kDimension}, Layout::sparse, nnz));
      if (tells_density) job.options.density = densities[call];
      job.run(inputs, 1);
      if (call < 2) continue;
      spent += job.elapsed_seconds;
      least += least_seconds(inputs);
    }
    return spent / least;
  }

 private:
  double least_seconds(const std::vector<AnyStream>& inputs) const {
    double least = 1e9;
    for (const Algorithm& row : registry()) {
      if (!is_row_of_auto(row)) continue;
      Job job{.sim = sim(), .believed = believed(), .options = {.algorithm = row.name}, .states = {}};
      job.run(inputs, 1);
      least = std::min(least, job.elapsed_seconds);
    }
    return least;
  }
};

void expect_near_the_best(const Loop& loop, std::string_view what) {
  EXPECT_LE(loop.overhead(), 1.15) << what << " on " << loop.network << ", P = " << loop.ranks << ", " << loop.slowness
                                   << " times as slow as believed, density told: " << loop.tells_density;
}

TEST(Auto, is_near_the_best_row_from_the_third_call_on) {
  for (const std::string_view network : {"gige", "10gbe", "aries"}) {
    for (const int ranks : {2, 3, 4, 8}) {
      for (const double slowness : {1.0, 3.0}) {
        for (const double density : {1e-4, 1e-3, 0.01, 0.1, 0.5}) {
          SCOPED_TRACE(density);
          expect_near_the_best({network, ranks, slowness, std::vector<double>(10, density), false}, "ten calls");
          expect_near_the_best({network, ranks, slowness, std::vector<double>(10, density), true}, "ten calls");
        }
      }
    }
  }
}

TEST(Auto, is_near_the_best_row_while_densities_drift) {
  for (const std::string_view network : {"gige", "10gbe", "aries"}) {
    for (const int ranks : {4, 8}) {
      for (const double slowness : {1.0, 3.0}) {
        std::vector<double> falling, swinging;
        for (int call = 0; call < 80; ++call) {
          falling.push_back(0.4 * std::pow(0.93, call));                   // to 0.1 %
          swinging.push_back(0.03 * std::pow(10, std::sin(call / 10.0)));  // 0.3 to 30 %
        }
        expect_near_the_best({network, ranks, slowness, falling, false}, "falling");
        expect_near_the_best({network, ranks, slowness, swinging, false}, "swinging");
      }
    }
  }
}

// Rows that a choice among those of one layout settles on, with few values and with many.
std::set<std::string> settled_rows(std::string_view algorithm, Layout layout) {
  const Profile slow{.alpha_seconds = 3e-5, .beta_seconds_per_byte = 8e-9};
  std::set<std::string> settled;
  for (const std::uint64_t dimension : {100u, 1u << 18}) {
    const auto inputs = make_inputs(8, {.dimension = dimension, .nnz = dimension / 10});
    Job job{.sim = {.profile = slow}, .believed = slow, .options = {.algorithm = algorithm}, .states = {}};
    for (const std::string& row : job.run(inputs, 60)) {
      EXPECT_EQ(find_algorithm(OperationKind::allreduce, row).input, layout) << row;
    }
    settled.insert(usual_row(job.run(inputs, 60)));
  }
  return settled;
}

TEST(Auto, chooses_among_sparse_or_dense_rows_where_asked_to) {
  EXPECT_EQ(settled_rows(kAutoSparse, Layout::sparse).size(), 2u);
  EXPECT_EQ(settled_rows(kAutoDense, Layout::dense).size(), 2u);
}

TEST(Auto, says_that_no_row_can_do_it) {
  const CostInput input{
      .ranks = 16, .dimension = 0x1p33, .nnz = 0.9 * 0x1p33, .result_nnz = 0x1p33, .index_bytes = 8, .nodes = 16};
  EXPECT_THROW(choose({.coded_values = true}, input, {}), Error);
}

// With positions at random a density of 30 % fills the sum, and a dense result is the best; ranks that always had the
// same positions will have them again, and the sum stays sparse.
TEST(Auto, learned_overlap_is_used_for_other_densities) {
  const Profile slow{.alpha_seconds = 3e-5, .beta_seconds_per_byte = 8e-9};
  const CallOptions more{.algorithm = kAuto, .density = 0.3};
  const SyntheticSpec drawn{.dimension = 1u << 18, .nnz = 78643};
  Job fresh{.sim = {}, .believed = slow, .options = more, .states = {}};
  EXPECT_EQ(fresh.run(make_inputs(8, drawn), 1).front(), "dsar_split_allgather");
  for (const std::string_view row :
       {"ssar_split_allgather", "dense_ring"}) {  // whose result is sparse, or tells nothing
    Job job{.sim = {}, .believed = slow, .options = {.algorithm = "ssar_split_allgather"}, .states = {}};
    const auto inputs = make_inputs(8, {.dimension = 1u << 18, .nnz = 12000, .overlap = Overlap::identical});
    job.run(inputs, 1);
    job.options.algorithm = row;
    job.run(inputs, 1);
    EXPECT_EQ(job.states[0].nnz_per_rank, 12000) << row;
    EXPECT_NEAR(job.states[0].result_nnz, 12000, 1e-6) << row;
    job.options = more;
    EXPECT_EQ(job.run(inputs, 1).front(), "ssar_split_allgather") << row;
  }
}

TEST(Auto, settles_where_nobody_has_anything) {
  Job job{.sim = {}, .believed = {}, .options = {}, .states = {}};
  const std::vector<std::string> ran = job.run(make_inputs(4, {.dimension = 1u << 14, .nnz = 0}), 100);
  EXPECT_EQ(job.states[0].experience.calls, 100u);
  EXPECT_NE(settled_on(job.states[0].experience), 0);
}

constexpr Ticks kSecond = 10'000'000;

// Calls of `row` that take `ratio` times what is expected.
void make_known(Experience& experience, std::uint8_t row, double ratio) {
  for (int call = 0; call < 5; ++call) note_call(experience, {static_cast<Ticks>(ratio * kSecond), row, 1.0, 100});
}

TEST(Experience, the_first_call_of_a_row_does_not_count) {
  Experience experience;
  note_call(experience, {0, 1, 1.0, 100});
  note_call(experience, {50 * kSecond, 1, 1.0, 100});
  EXPECT_EQ(experience.rows[0].known, 0u);
  note_call(experience, {2 * kSecond, 1, 1.0, 100});
  EXPECT_EQ(experience.rows[0].known, 1u);
  EXPECT_FLOAT_EQ(experience.rows[0].ratios[0], 2);
}

TEST(Experience, one_disturbed_call_changes_nothing) {
  Experience experience;
  make_known(experience, 1, 1.5);
  note_call(experience, {100 * kSecond, 1, 1.0, 100});
  EXPECT_TRUE(verdict_on(experience, 1).is_known);
  EXPECT_FLOAT_EQ(static_cast<float>(verdict_on(experience, 1).correction), 1.5f);
}

TEST(Experience, rows_not_tried_are_thought_to_be_off_by_as_much_as_the_best_that_was) {
  for (const double ratio : {3.0, 0.25}) {
    Experience experience;
    make_known(experience, 1, ratio);
    make_known(experience, 2, 2 * ratio);
    EXPECT_FLOAT_EQ(static_cast<float>(verdict_on(experience, 3).correction), static_cast<float>(ratio));
    EXPECT_FALSE(verdict_on(experience, 3).is_known);
  }
}

TEST(Experience, other_data_leaves_little_of_it) {
  Experience experience;
  make_known(experience, 1, 3);
  const double sure = verdict_on(experience, 1).hope;
  note_call(experience, {3 * kSecond, 1, 1.0, 199});
  EXPECT_GE(verdict_on(experience, 1).hope, sure);
  note_call(experience, {3 * kSecond, 1, 1.0, 399});
  EXPECT_FLOAT_EQ(static_cast<float>(verdict_on(experience, 1).correction), 3);
  EXPECT_LT(verdict_on(experience, 1).hope, sure);
  note_call(experience, {3 * kSecond, 1, 1.0, 399 * 17});
  EXPECT_FALSE(verdict_on(experience, 1).is_known);
}

/// Calls of auto that take what `seconds` says of a row.
struct Course {
  CostInput input{.ranks = 8, .dimension = 1e6, .nnz = 1e4, .result_nnz = 7e4};
  RowNeeds needs;
  Experience experience;
  std::map<std::string_view, int> calls;
  double spent = 0;

  const Algorithm& next() const { return choose(needs, input, experience); }
  double cost(const Algorithm& row) const { return row.cost_seconds(input); }

  template <class Seconds>
  void run(int count, Seconds&& seconds) {
    for (int call = 0; call < count; ++call) {
      const Algorithm& row = next();
      note_call(experience, {to_ticks(last_), algorithm_number(row), cost(row), input.nnz});
      last_ = seconds(row);
      spent += last_;
      calls[row.name] += 1;
    }
  }

 private:
  double last_ = 0;
};

TEST(Experience, learning_costs_a_few_per_cent) {
  Course course;
  const Algorithm& first = course.next();
  const auto seconds = [&](const Algorithm& row) { return (&row == &first ? 10 : 20) * course.cost(row); };
  course.run(4000, seconds);
  EXPECT_GT(course.calls.size(), 2u);
  EXPECT_LT(course.spent, 1.05 * 4000 * seconds(first));
  EXPECT_GT(course.calls[first.name], 3900);
}

TEST(Experience, a_bad_trial_is_not_the_last_word) {
  Course course;
  const Algorithm& first = course.next();
  const auto disturbed = [&](const Algorithm& row) { return (&row == &first ? 1 : 2.5) * course.cost(first); };
  course.run(300, disturbed);
  EXPECT_EQ(&course.next(), &first);
  ASSERT_GT(course.calls.size(), 1u);
  const auto is_other = [&](const auto& entry) { return entry.first != first.name; };
  const std::string_view other = std::ranges::find_if(course.calls, is_other)->first;
  course.run(5000, [&](const Algorithm& row) { return row.name == other ? 0.5 * course.cost(first) : disturbed(row); });
  EXPECT_EQ(course.next().name, other);
}

class ForcedRow : public ::testing::Test {
 protected:
  ~ForcedRow() override { unsetenv("TULLE_ALGORITHM"); }
};

TEST_F(ForcedRow, takes_the_place_of_auto) {
  setenv("TULLE_ALGORITHM", "dense_ring", 1);
  const SimRun run = run_in_simulation(OperationKind::allreduce, make_inputs(3, {.dimension = 64, .nnz = 4}));
  expect_no_errors(run.errors);
  EXPECT_EQ(run.outcomes[0].algorithm, "dense_ring");
}

TEST_F(ForcedRow, never_replaces_a_row_that_was_named) {
  for (const char* forced : {"dense_ring", "dense_rong"}) {
    setenv("TULLE_ALGORITHM", forced, 1);
    const SimRun run = run_in_simulation(OperationKind::allreduce, make_inputs(3, {.dimension = 64, .nnz = 4}),
                                         {.algorithm = "ssar_recursive_double"});
    expect_no_errors(run.errors);
    EXPECT_EQ(run.outcomes[0].algorithm, "ssar_recursive_double");
  }
}

TEST_F(ForcedRow, says_what_there_is_where_the_name_is_wrong) {
  setenv("TULLE_ALGORITHM", "dense_rong", 1);
  const SimRun run = run_in_simulation(OperationKind::allreduce, make_inputs(2, {.dimension = 64, .nnz = 4}));
  const std::string message = message_of(run.errors[0]);
  EXPECT_NE(message.find("TULLE_ALGORITHM"), std::string::npos) << message;
  EXPECT_NE(message.find("dense_ring"), std::string::npos) << message;
}

TEST_F(ForcedRow, leaves_other_collectives_alone) {
  setenv("TULLE_ALGORITHM", "dense_ring", 1);
  const SimRun run = run_in_simulation(OperationKind::allgather, make_inputs(3, {.dimension = 64, .nnz = 4}));
  expect_no_errors(run.errors);
  EXPECT_EQ(run.outcomes[0].algorithm, "sparse_allgather");
}

}  // namespace
}  // namespace tulle::testing
