// The simulator's containers: events in order, places of messages under way, messages packed and opened again.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <map>
#include <string_view>

#include "comm/sim_events.hpp"
#include "comm/sim_flights.hpp"
#include "comm/sim_parcel.hpp"

namespace tulle {
namespace {

RC_GTEST_PROP(SimEvents, come_in_order_of_time_whatever_their_lanes, (const std::vector<std::uint8_t>& times)) {
  SimEvents events(3);
  std::vector<double> expected;
  for (std::size_t i = 0; i < times.size(); ++i) {
    const auto lane = static_cast<std::uint32_t>(i % 4);
    const double time = times[i];
    events.push({time, i, 0, lane == 3 ? SimEvents::kNoLane : lane});
    expected.push_back(time);
  }
  std::sort(expected.begin(), expected.end());
  std::vector<double> got;
  while (!events.empty()) got.push_back(events.pop().time);
  RC_ASSERT(got == expected);
}

RC_GTEST_PROP(SimFlights, keep_what_is_put_until_it_is_taken, (const std::vector<std::uint16_t>& choices)) {
  SimFlights flights;
  std::map<std::uint32_t, std::uint64_t> under_way;
  std::uint64_t next = 0;
  for (const std::uint16_t choice : choices) {
    for (int i = 0; i < choice % 700; ++i, ++next) {
      const std::uint32_t place = flights.put({.transfer = {.bytes = next}});
      RC_ASSERT(under_way.emplace(place, next).second);
    }
    for (int i = 0; i < choice / 64 && !under_way.empty(); ++i) {
      const auto taken = std::next(under_way.begin(), choice % static_cast<std::ptrdiff_t>(under_way.size()));
      RC_ASSERT(flights.take(taken->first).transfer.bytes == taken->second);
      under_way.erase(taken);
    }
  }
  for (const auto& [place, bytes] : under_way) RC_ASSERT(flights.at(place).transfer.bytes == bytes);
}

Buffer text(std::string_view content) { return Buffer::copy_of(std::as_bytes(std::span(content))); }

std::string_view text_of(const Buffer& buffer) { return {reinterpret_cast<const char*>(buffer.data()), buffer.size()}; }

Message message_of(Segments segments) { return {text("head"), std::move(segments), nullptr, 7}; }

TEST(SimParcel, gives_back_phantoms_and_small_buffers_in_their_order) {
  Segments segments;
  for (const Buffer& each : {text("frame"), Buffer::phantom(1 << 20), Buffer::phantom(0), text("")}) {
    segments.push_back(each);
  }
  const Message opened = SimParcel(message_of(segments)).open();
  EXPECT_EQ(text_of(opened.head), "head");
  EXPECT_EQ(opened.depth, 7u);
  ASSERT_EQ(opened.segments.size(), 4u);
  EXPECT_EQ(text_of(opened.segments[0]), "frame");
  EXPECT_TRUE(opened.segments[1].is_phantom());
  EXPECT_EQ(opened.segments[1].size(), std::size_t{1} << 20);
  EXPECT_TRUE(opened.segments[2].is_phantom());
  EXPECT_EQ(opened.segments[3].size(), 0u);
}

TEST(SimParcel, shares_data_with_the_sender) {
  Segments segments;
  segments.push_back(text("data"));
  const std::byte* const memory = segments[0].data();
  EXPECT_EQ(SimParcel(message_of(segments)).open().segments[0].data(), memory);
}

TEST(SimParcel, keeps_what_does_not_fit_in_place) {
  Segments segments;
  segments.push_back(text(std::string(1000, 'x')));
  segments.push_back(Buffer::phantom(5));
  const Message opened = SimParcel(message_of(segments)).open();
  EXPECT_EQ(text_of(opened.segments[0]), std::string(1000, 'x'));
  EXPECT_TRUE(opened.segments[1].is_phantom());
}

}  // namespace
}  // namespace tulle
