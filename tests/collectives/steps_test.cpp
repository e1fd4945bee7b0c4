// Every message of an operation has a number of its own with each peer: counted on a transport that looks at all of
// them, for every row, where parts travel in bundles and where each travels alone.
#include "collectives/steps.hpp"

#include <map>
#include <mutex>
#include <thread>

#include "collectives/accumulators.hpp"

namespace tulle::testing {
namespace {

struct Letter {
  int from;
  Message message;
};

// What all ranks share: who has been sent what, and how often each (from, to, operation, step) was used.
class PostOffice {
 public:
  explicit PostOffice(int ranks) : boxes_(static_cast<std::size_t>(ranks)) {}
  int ranks() const { return static_cast<int>(boxes_.size()); }

  void put(int from, int to, Message message) {
    const MessageHeader header = decode_message_header(message.head.bytes());
    message.ticket.reset();
    const std::lock_guard lock(mutex_);
    uses_[{from, to, header.sequence, header.step}] += 1;
    boxes_[static_cast<std::size_t>(to)].push_back({from, std::move(message)});
  }
  std::vector<Letter> take(int rank) {
    const std::lock_guard lock(mutex_);
    return std::exchange(boxes_[static_cast<std::size_t>(rank)], {});
  }
  void expect_single_uses() const {
    for (const auto& [key, count] : uses_) {
      const auto& [from, to, sequence, step] = key;
      ASSERT_EQ(count, 1) << "rank " << from << " sends rank " << to << " step " << step << " of operation "
                          << sequence;
    }
  }
  std::size_t messages() const { return uses_.size(); }

 private:
  std::mutex mutex_;
  std::vector<std::vector<Letter>> boxes_;
  std::map<std::tuple<int, int, std::uint64_t, Step>, int> uses_;
};

class CountingTransport final : public Transport {
 public:
  CountingTransport(std::shared_ptr<PostOffice> office, int rank, const Profile& profile)
      : office_(std::move(office)), rank_(rank), profile_(profile) {}
  std::string name() const override { return "counting"; }
  int rank() const override { return rank_; }
  int size() const override { return office_->ranks(); }
  void attach(MessageSink& sink) override { sink_ = &sink; }
  void send(int peer, Message message) override { office_->put(rank_, peer, std::move(message)); }
  bool poll() override {
    std::vector<Letter> letters = office_->take(rank_);
    for (Letter& letter : letters) sink_->deliver(letter.from, std::move(letter.message));
    return !letters.empty();
  }
  void idle(int) override { std::this_thread::yield(); }
  double now() const override {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  }
  Profile default_profile() const override { return profile_; }
  int node_of(int rank) const override { return rank / 2; }

 private:
  std::shared_ptr<PostOffice> office_;
  int rank_;
  Profile profile_;
  MessageSink* sink_ = nullptr;
};

void run_counted(int ranks, const Profile& profile, const std::function<void(Communicator&)>& body) {
  const auto office = std::make_shared<PostOffice>(ranks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      Communicator communicator(std::make_unique<CountingTransport>(office, rank, profile));
      EXPECT_NO_THROW(body(communicator));
    });
  }
  for (std::thread& thread : threads) thread.join();
  office->expect_single_uses();
  EXPECT_GT(office->messages(), 0u);
}

// Without latency every part is worth a message of its own.
Profile without_latency() {
  Profile profile;
  profile.alpha_seconds = 0;
  return profile;
}

class StepsOfEveryRow : public ::testing::TestWithParam<const Algorithm*> {
 protected:
  const Algorithm& row() const { return *GetParam(); }

  void reduce_streams(Communicator& communicator) const {
    const auto inputs = make_inputs(communicator.size(), {.dimension = 3000, .nnz = 200});
    const auto rank = static_cast<std::size_t>(communicator.rank());
    (void)start_collective(row().kind, communicator, inputs[rank], {.algorithm = row().name}).wait();
  }

  // Calls with and without a search, then values that all lie in one owner's region.
  void reduce_accumulators(Communicator& communicator, int teams, std::string_view team_gather) const {
    auto values = make_accumulators<float>(communicator.size(), 3000)[static_cast<std::size_t>(communicator.rank())];
    AlgorithmState state;
    for (std::uint64_t step = 0; step < 4; ++step) {
      for (std::size_t i = 0; i < 100 && step >= 2; ++i) values[i] += 1e9f + 1e7f * static_cast<float>(i);
      (void)start_collective(row().kind, communicator, Accumulator(std::span<float>(values)),
                             {.algorithm = row().name,
                              .k = 100,
                              .teams = teams,
                              .team_gather = team_gather,
                              .region_period = 3,
                              .step = step},
                             &state)
          .wait();
    }
  }
};
std::vector<const Algorithm*> all_rows_on_messages() {
  std::vector<const Algorithm*> rows = rows_on_messages();
  for (const Algorithm* row : rows_on_accumulators()) rows.push_back(row);
  return rows;
}
INSTANTIATE_TEST_SUITE_P(Registry, StepsOfEveryRow, ::testing::ValuesIn(all_rows_on_messages()),
                         [](const auto& info) { return std::string(info.param->name); });

TEST_P(StepsOfEveryRow, are_used_once_with_each_peer) {
  for (const int ranks : {2, 3, 4, 6, 9}) {
    for (const Profile& profile : {Profile{}, without_latency()}) {
      SCOPED_TRACE(::testing::Message() << "P = " << ranks << ", alpha = " << profile.alpha_seconds);
      if (row().takes == Takes::stream) {
        run_counted(ranks, profile, [&](Communicator& communicator) { reduce_streams(communicator); });
        continue;
      }
      for (const std::string_view team_gather : {"r_sag", "b_sag"}) {
        run_counted(ranks, profile, [&](Communicator& communicator) {
          reduce_accumulators(communicator, row().name == "spardl" && ranks % 2 == 0 ? 2 : 1, team_gather);
        });
      }
    }
  }
}

// Messages that overtake each other are told apart by their steps alone.
TEST_P(StepsOfEveryRow, tell_messages_apart_where_all_travel_alone_and_late) {
  if (row().takes != Takes::accumulator) return;  // faults_test.cpp has the others
  for (const int ranks : {3, 4, 8}) {
    std::vector<AlgorithmState> calm_states(static_cast<std::size_t>(ranks)), shaken_states = calm_states;
    auto calm_after = make_accumulators<float>(ranks, 997);
    auto shaken_after = calm_after;
    for (std::uint64_t step = 0; step < 4; ++step) {
      const CallOptions options{.algorithm = row().name, .k = 60, .step = step};
      const SimRun calm = testing::reduce_accumulators<float>(row().kind, calm_after, options, &calm_states,
                                                              {.profile = without_latency()});
      const SimRun shaken = testing::reduce_accumulators<float>(
          row().kind, shaken_after, options, &shaken_states,
          {.profile = without_latency(), .seed = step + 1, .faults = {.max_delay_seconds = 1e-3}});
      expect_no_errors(calm.errors);
      expect_no_errors(shaken.errors);
      ASSERT_TRUE(shaken.outcomes[0].stream == calm.outcomes[0].stream);
      ASSERT_EQ(shaken_after, calm_after);
    }
  }
}

TEST(Steps, of_phases_do_not_overlap) {
  static_assert(after_message(0) == 1);
  static_assert(after_rounds(5) - 5 == kMostRounds);
  static_assert(after_gather(5) - after_rounds(5) == kMostMembersAlone);
  EXPECT_THROW(after_gather(0xFFF0), std::length_error);
}

}  // namespace
}  // namespace tulle::testing
