// What ranks must have alike, on any number of ranks.
#include "tulle/comm/settings.hpp"

#include <gtest/gtest.h>

#include "comm/loopback.hpp"
#include "comm/setting_list.hpp"
#include "tulle/comm/control.hpp"
#include "tulle/comm/sim.hpp"
#include "tulle/comm/threads.hpp"

namespace tulle::testing {
namespace {

using Settings = std::vector<Setting>;

// What each rank was told; nothing where all was well.
std::vector<std::string> told(int ranks, const std::function<Settings(int rank)>& settings_of_rank) {
  SimWorld world({.ranks = ranks, .faults = {.max_delay_seconds = 1}});
  std::vector<std::string> texts(static_cast<std::size_t>(ranks));
  world.run([&](Communicator& communicator) -> Task<> {
    const Settings settings = settings_of_rank(communicator.rank());
    auto comparing = irequire_same_settings(communicator, settings);
    try {
      co_await comparing;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::mismatch);
      texts[static_cast<std::size_t>(communicator.rank())] = error.what();
    }
    auto after = ibarrier(communicator);  // the communicator stays usable
    co_await after;
  });
  return texts;
}

class SettingsOfRanks : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, SettingsOfRanks, ::testing::Values(1, 2, 3, 4, 5, 6, 7, 8, 17),
                         [](const auto& ranks) { return std::to_string(ranks.param); });

TEST_P(SettingsOfRanks, that_are_alike_pass_in_any_order_and_when_there_are_none) {
  const std::vector<std::string> nothing(static_cast<std::size_t>(GetParam()));
  EXPECT_EQ(told(GetParam(), [](int) { return Settings{}; }), nothing);
  EXPECT_EQ(told(GetParam(),
                 [](int rank) {
                   Settings settings = {{"rate", "0.05"}, {"batch", "64"}, {"recipe", "topk:1% | error_feedback"}};
                   std::ranges::rotate(settings, settings.begin() + rank % 3);
                   return settings;
                 }),
            nothing);
}

TEST_P(SettingsOfRanks, tell_every_rank_the_first_that_differs_whichever_rank_has_it) {
  for (int odd = 0; GetParam() > 1 && odd < GetParam(); ++odd) {
    const std::vector<std::string> texts = told(GetParam(), [odd](int rank) {
      return Settings{{"batch", "64"}, {"rate", rank == odd ? "0.1" : "0.05"}, {"seed", std::to_string(rank)}};
    });
    for (const std::string& text : texts) {
      EXPECT_EQ(text, texts[0]);
      EXPECT_NE(text.find("different settings: rate is "), text.npos) << text;
      EXPECT_NE(text.find("is 0.1 on rank " + std::to_string(odd)), text.npos) << text;
      EXPECT_NE(text.find(GetParam() == 2 ? "is 0.05 on rank " : "is 0.05 on ranks "), text.npos) << text;
    }
  }
}

TEST_P(SettingsOfRanks, tell_every_rank_of_one_that_some_lack) {
  for (const bool first_has : {true, false}) {
    if (GetParam() == 1) continue;
    const std::vector<std::string> texts = told(GetParam(), [first_has](int rank) {
      Settings settings{{"batch", "64"}};
      if ((rank == 0) == first_has) settings.push_back({"clip", "5"});
      return settings;
    });
    for (const std::string& text : texts) {
      EXPECT_EQ(text, texts[0]);
      EXPECT_NE(text.find(first_has ? "clip is 5 on rank 0, is not set on rank" : "clip is not set on rank 0, is 5"),
                text.npos)
          << text;
    }
  }
}

TEST_P(SettingsOfRanks, are_compared_on_threads_too) {
  run_threads(GetParam(), [](Communicator& communicator) {
    communicator.set_default_deadline(60);
    require_same_settings(communicator, Settings{{"rate", "0.05"}});
    const bool is_last = communicator.rank() == communicator.size() - 1;
    if (communicator.size() == 1) return;
    const auto [kind, text] = error_of([&] {
      require_same_settings(communicator, Settings{{"rate", is_last ? "0.1" : "0.05"}, {"momentum", "0"}});
    });
    EXPECT_EQ(kind, ErrorKind::mismatch);
    EXPECT_NE(text.find("is 0.1 on rank " + std::to_string(communicator.size() - 1)), text.npos) << text;
    barrier(communicator);
  });
}

TEST(SettingsOfRanks, with_many_values_name_some) {
  const std::vector<std::string> texts = told(17, [](int rank) { return Settings{{"seed", std::to_string(rank)}}; });
  EXPECT_NE(
      texts[3].find("seed is 0 on rank 0, is 1 on rank 1, is 2 on rank 2, is 3 on rank 3, and has 13 more values"),
      std::string::npos)
      << texts[3];
}

// Checksums are linear, so that a sum of them would be equal here.
TEST(SettingsOfRanks, that_changed_places_are_told) {
  const std::vector<std::string> texts = told(2, [](int rank) {
    const bool is_first = rank == 0;
    return Settings{{"a", is_first ? "1" : "2"}, {"b", is_first ? "2" : "1"}};
  });
  EXPECT_NE(texts[1].find("a is 1 on rank 0, is 2 on rank 1"), std::string::npos) << texts[1];
}

TEST(SettingsOfRanks, cost_the_same_however_long_they_are_where_they_are_alike) {
  const auto seconds_with = [](std::size_t length) {
    SimWorld world({.ranks = 8});
    world.run([length](Communicator& communicator) -> Task<> {
      const Settings settings = {{"recipe", std::string(length, 'x')}};
      auto comparing = irequire_same_settings(communicator, settings);
      co_await comparing;
    });
    return world.elapsed_seconds();
  };
  EXPECT_GT(seconds_with(10), 0);
  EXPECT_EQ(seconds_with(10), seconds_with(1'000'000));
}

TEST(SettingsOfRanks, meet_another_call_as_a_mismatch) {
  SimWorld world({.ranks = 2});
  for (const auto& error : world.try_run([](Communicator& communicator) -> Task<> {
         if (communicator.rank() == 0) {
           auto comparing = irequire_same_settings(communicator, Settings{{"rate", "1"}});
           co_await comparing;
         } else {
           auto gathering = igather_bytes(communicator, Buffer());
           co_await gathering;
         }
       })) {
    EXPECT_TRUE(error);
  }
}

TEST(SettingList, goes_through_lines_and_reads_any_bytes) {
  const Settings settings = {{"recipe", "topk:1% | x: y"}, {"empty", ""}, {"two lines", "a b"}};
  EXPECT_EQ(settings_of(lines_of(settings)), settings);
  EXPECT_EQ(settings_of(lines_of(Settings{{"name", "a\nforged: b"}})), (Settings{{"name", "a forged: b"}}));
  EXPECT_EQ(settings_of("no text\n\nx: y"), (Settings{{"no text", ""}, {"", ""}, {"x", "y"}}));
  EXPECT_TRUE(settings_of("").empty());
}

}  // namespace
}  // namespace tulle::testing
