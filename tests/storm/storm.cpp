#include "storm/storm.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>

#include "tulle/base/philox.hpp"
#include "tulle/collectives/collectives.hpp"
#include "tulle/comm/shrink.hpp"
#include "tulle/stream/reduction.hpp"

namespace tulle::storm {
namespace {

constexpr std::uint64_t kDimension = 48;
constexpr std::uint64_t kLargest = 6;  // values that rows which select deliver
constexpr int kMostTries = 40;
constexpr double kSumDeadline = 0.05, kAgreeDeadline = 1, kSlowSeconds = 0.6;

// A value tells whose it is: sums show who took part.
AnyStream input_of(int rank) {
  std::vector<std::uint32_t> indices;
  std::vector<std::int64_t> values;
  for (std::uint32_t index = static_cast<std::uint32_t>(rank) % 3; index < kDimension;
       index += static_cast<std::uint32_t>(2 + rank % 4)) {
    indices.push_back(index);
    values.push_back(std::int64_t{1} << (4 * rank));
  }
  return Stream<std::int64_t>::from_sorted(kDimension, std::span<const std::uint32_t>(indices),
                                           std::span<const std::int64_t>(values));
}

std::vector<std::int64_t> accumulator_of(int rank) {
  Philox random(static_cast<std::uint64_t>(rank) + 1);
  std::vector<std::int64_t> values(kDimension);
  for (std::int64_t& value : values) value = static_cast<std::int64_t>(random.below(2000)) - 1000;
  return values;
}

// What a rank has reached while it lived.
struct Committed {
  AnyStream sum;
  std::vector<int> members;  ///< ranks of the job whose streams are in the sum
};
struct Reached {
  std::vector<std::pair<std::tuple<ContextId, std::uint16_t>, Agreement>> agreements;
  std::optional<Committed> committed;
  bool is_excluded = false;
  std::string complaint;
};

struct Job {
  const Schedule& schedule;
  SimWorld& world;
  std::vector<Reached> reached;
};

std::vector<int> members_of(const Communicator& communicator) {
  const auto& ranks = communicator.context()->world_ranks;
  return {ranks.begin(), ranks.end()};
}

Request<Outcome> start_sum(const Job& job, Communicator& communicator, int rank, std::span<std::int64_t> accumulator) {
  const Algorithm& row = *job.schedule.row;
  CallOptions options{.algorithm = row.name, .deadline_seconds = kSumDeadline};
  if (row.takes == Takes::accumulator) options.k = kLargest;
  const bool is_scattered = row.kind == OperationKind::reduce_scatter;
  if (row.takes == Takes::accumulator && is_scattered) {
    return ireduce_scatter(communicator, Accumulator(accumulator), options);
  }
  if (row.takes == Takes::accumulator) return iallreduce(communicator, Accumulator(accumulator), options);
  switch (row.kind) {
    case OperationKind::allgather: return iallgather(communicator, input_of(rank), options);
    case OperationKind::reduce_scatter: return ireduce_scatter(communicator, input_of(rank), options);
    case OperationKind::reduce: return ireduce(communicator, input_of(rank), options);
    case OperationKind::broadcast: return ibroadcast(communicator, input_of(rank), options);
    default: return iallreduce(communicator, input_of(rank), options);
  }
}

// One try to sum. Null where it failed; the rank's input is then as it was, or there is a complaint.
Task<std::optional<AnyStream>> try_sum(Job& job, Communicator& communicator, int rank) {
  std::vector<std::int64_t> accumulator = accumulator_of(rank);
  std::optional<AnyStream> sum;
  try {
    Request<Outcome> request = start_sum(job, communicator, rank, accumulator);
    const Outcome outcome = co_await request;
    sum = outcome.stream;
  } catch (const Error&) {
    if (accumulator != accumulator_of(rank)) job.reached[static_cast<std::size_t>(rank)].complaint = "an input changed";
  }
  co_return sum;
}

// Sums until all who are left have the sum of one communicator. Who has it while another does not throws it away.
Task<> survive(Job& job, Communicator& whole) {
  const int rank = whole.rank();
  Reached& reached = job.reached[static_cast<std::size_t>(rank)];
  const AgreeOptions options{.deadline_seconds = kAgreeDeadline, .quorum = job.schedule.quorum};
  Communicator current = whole;
  for (int tries = 0; tries < kMostTries; ++tries) {
    auto summing = try_sum(job, current, rank);
    const std::optional<AnyStream> sum = co_await summing;
    if (rank == job.schedule.slow_rank) current.engine()->transport().charge(kSlowSeconds);
    auto agreeing = iagree(current, sum.has_value() ? 1 : 0, options);
    const Agreement agreement = co_await agreeing;
    if (job.world.is_dead(rank)) co_return;
    reached.agreements.push_back({{current.context()->id, current.context()->epoch}, agreement});
    if (std::ranges::count(agreement.values, 1u) == std::ranges::ssize(agreement.values)) {
      reached.committed = Committed{*sum, members_of(current)};
      co_return;
    }
    auto shrinking = ishrink(current, options);
    Communicator next = co_await shrinking;
    if (job.world.is_dead(rank)) co_return;
    current = next;
  }
  reached.complaint = "shrinks for ever";
}

// ---------------------------------------------------------------- what must hold

std::string differing_agreements(const Job& job) {
  std::map<std::tuple<ContextId, std::uint16_t, std::uint16_t>, const Agreement*> known;
  for (const Reached& reached : job.reached) {
    for (const auto& [communicator, agreement] : reached.agreements) {
      const auto key = std::tuple_cat(communicator, std::tuple(agreement.epoch));
      const auto [place, is_new] = known.try_emplace(key, &agreement);
      if (!is_new && *place->second != agreement) return "two ranks got different answers of one agreement";
    }
  }
  return "";
}

AnyStream expected_sum(std::span<const int> members) {
  AnyStream sum = input_of(members.front());
  for (const int rank : members.subspan(1)) sum = reduce(sum, input_of(rank), Op::sum());
  return to_dense(sum, Op::sum());
}

// What a rank must have committed, densely; none where the row has something of its own for each.
std::optional<AnyStream> expected_of(const Algorithm& row, const Committed& committed, int rank) {
  if (row.takes != Takes::stream) return std::nullopt;
  const AnyStream sum = expected_sum(committed.members);
  switch (row.kind) {
    case OperationKind::broadcast: return to_dense(input_of(committed.members.front()), Op::sum());
    case OperationKind::reduce_scatter: return to_dense(slice(sum, committed.sum.range()), Op::sum());
    case OperationKind::reduce:
      if (rank != committed.members.front()) return to_dense(AnyStream::empty(sum.type(), kDimension), Op::sum());
      return sum;
    default: return sum;
  }
}

bool gives_all_the_same(const Algorithm& row) {
  return row.kind != OperationKind::reduce && row.kind != OperationKind::reduce_scatter;
}

std::string differing_commits(const Job& job) {
  const Algorithm& row = *job.schedule.row;
  const Committed* first = nullptr;
  for (int rank = 0; rank < job.schedule.ranks; ++rank) {
    const std::optional<Committed>& committed = job.reached[static_cast<std::size_t>(rank)].committed;
    if (!committed) continue;
    if (first == nullptr) first = &*committed;
    if (first->members != committed->members) return "two ranks committed sums of different members";
    if (gives_all_the_same(row) && !(first->sum == committed->sum)) return "two ranks committed different bytes";
    const std::optional<AnyStream> expected = expected_of(row, *committed, rank);
    if (expected && !(to_dense(committed->sum, Op::sum()) == *expected)) return "a wrong sum was committed";
  }
  return "";
}

// Where all the living must come through: nobody was taken for dead who lives, and enough are left.
bool must_commit(const Schedule& schedule, int dead) {
  if (!schedule.faults.rumors.empty() || !schedule.faults.partitions.empty() || schedule.slow_rank >= 0) return false;
  return schedule.quorum == Quorum::any || schedule.ranks - dead > schedule.ranks / 2;
}

std::string what_is_wrong(const Job& job, const Report& report) {
  for (std::size_t rank = 0; rank < job.reached.size(); ++rank) {
    const Reached& reached = job.reached[rank];
    if (!reached.complaint.empty()) return fmt::format("rank {}: {}", rank, reached.complaint);
    const bool lives = !job.world.is_dead(static_cast<int>(rank));
    if (lives && !reached.committed && (!reached.is_excluded || must_commit(job.schedule, report.dead))) {
      return fmt::format("rank {} lives and has not come through", rank);
    }
  }
  if (std::string complaint = differing_agreements(job); !complaint.empty()) return complaint;
  return differing_commits(job);
}

void note_error(Reached& reached, const std::exception_ptr& error) {
  try {
    if (error) std::rethrow_exception(error);
  } catch (const Error& thrown) {
    reached.is_excluded = thrown.kind() == ErrorKind::excluded;
    if (!reached.is_excluded) reached.complaint = thrown.what();
  }
}

// Every try takes at most its deadlines, and each death and each piece of false news costs two at most.
double longest_seconds(const Schedule& schedule) {
  const auto disturbances = schedule.faults.deaths.size() + schedule.faults.rumors.size() + 2;
  return static_cast<double>(2 * disturbances) * (2 * kAgreeDeadline + kSumDeadline + kSlowSeconds);
}

}  // namespace

std::vector<const Algorithm*> rows() {
  std::vector<const Algorithm*> rows;
  for (const Algorithm& row : registry()) {
    if (row.needs == Needs::messages && row.name != "dense_allgather") rows.push_back(&row);
  }
  return rows;
}

std::vector<const Algorithm*> allreduce_rows() {
  std::vector<const Algorithm*> all = rows();
  std::erase_if(all, [](const Algorithm* row) { return row->kind != OperationKind::allreduce; });
  return all;
}

Report run(const Schedule& schedule) {
  SimWorld world({.ranks = schedule.ranks, .seed = schedule.seed, .faults = schedule.faults});
  Job job{schedule, world, std::vector<Reached>(static_cast<std::size_t>(schedule.ranks))};
  Report report;
  try {
    const auto errors = world.try_run([&](Communicator& communicator) { return survive(job, communicator); });
    for (int rank = 0; rank < schedule.ranks; ++rank) {
      Reached& reached = job.reached[static_cast<std::size_t>(rank)];
      if (!world.is_dead(rank)) note_error(reached, errors[static_cast<std::size_t>(rank)]);
      report.dead += world.is_dead(rank);
      report.committed += reached.committed.has_value();
      report.excluded += reached.is_excluded;
      report.agreements += reached.agreements.size();
    }
    report.complaint = what_is_wrong(job, report);
    if (report.complaint.empty() && world.elapsed_seconds() > longest_seconds(schedule)) {
      report.complaint = fmt::format("took {} s", world.elapsed_seconds());
    }
  } catch (const Error& error) {  // the simulation has come to a stop
    report.complaint = error.what();
  }
  return report;
}

// ---------------------------------------------------------------- schedules

namespace {

SimDeath random_death(Philox& random, int ranks, bool is_always_told) {
  SimDeath death{.rank = static_cast<int>(random.below(static_cast<std::uint64_t>(ranks))),
                 .after_messages = random.below(static_cast<std::uint64_t>(12 * ranks))};
  constexpr double kLate[] = {0, 1e-5, 1e-3, 0.1};
  death.told_within_seconds = kLate[random.below(4)];
  if (!is_always_told && random.below(5) == 0) death.told_within_seconds.reset();
  return death;
}

SimPartition random_partition(Philox& random, int ranks) {
  SimPartition partition{.begin_seconds = 1e-4 * random.uniform(), .end_seconds = 2 * random.uniform(), .island = {}};
  for (int rank = 0; rank < ranks; ++rank) {
    if (random.below(2) == 0) partition.island.push_back(rank);
  }
  return partition;
}

}  // namespace

Schedule random_schedule(std::uint64_t number) {
  Philox random(number);
  const auto all = allreduce_rows();
  Schedule schedule{.ranks = 2 + static_cast<int>(random.below(8)),
                    .row = all[random.below(all.size())],
                    .quorum = Quorum::majority,
                    .seed = number,
                    .faults = {}};
  const auto a_rank = [&] { return static_cast<int>(random.below(static_cast<std::uint64_t>(schedule.ranks))); };
  const bool is_rough = random.below(2) == 0;  // the transport is wrong, or says nothing
  if (!is_rough && random.below(2) == 0) schedule.quorum = Quorum::any;
  if (random.below(2) == 0) schedule.faults.max_delay_seconds = random.below(2) == 0 ? 1e-5 : 1e-3;
  for (auto deaths = random.below(4); deaths > 0; --deaths) {
    schedule.faults.deaths.push_back(random_death(random, schedule.ranks, !is_rough));
  }
  if (!is_rough) return schedule;
  for (auto rumors = random.below(3); rumors > 0; --rumors) {
    const int to = a_rank(), about = a_rank();
    if (to != about) schedule.faults.rumors.push_back({to, about, 1e-3 * random.uniform()});
  }
  if (random.below(3) == 0) schedule.faults.partitions.push_back(random_partition(random, schedule.ranks));
  if (random.below(3) == 0) schedule.slow_rank = a_rank();
  return schedule;
}

std::string describe(const Schedule& schedule) {
  std::string text = fmt::format("{} ranks, {}, quorum {}, seed {}, delays up to {} s", schedule.ranks,
                                 schedule.row->name, schedule.quorum == Quorum::any ? "any" : "majority", schedule.seed,
                                 schedule.faults.max_delay_seconds);
  for (const SimDeath& death : schedule.faults.deaths) {
    text += fmt::format("; rank {} dies after {} messages, told {}", death.rank, death.after_messages,
                        death.told_within_seconds ? fmt::format("within {} s", *death.told_within_seconds) : "never");
  }
  for (const SimRumor& rumor : schedule.faults.rumors) {
    text += fmt::format("; rank {} hears at {} s that {} is gone", rumor.to, rumor.seconds, rumor.about);
  }
  for (const SimPartition& partition : schedule.faults.partitions) {
    text += fmt::format("; {} ranks cut off from {} to {} s", partition.island.size(), partition.begin_seconds,
                        partition.end_seconds);
  }
  if (schedule.slow_rank >= 0) text += fmt::format("; rank {} is slow", schedule.slow_rank);
  return text;
}

}  // namespace tulle::storm
