// Strangers at every port: silent, slow, garbage, too many, and where descriptors are few.
#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>

#include "comm/tcp/entrance.hpp"
#include "comm/tcp/timed_io.hpp"
#include "comm_tcp/processes.hpp"
#include "comm_tcp/tcp_fixture.hpp"
#include "tulle/comm/admission.hpp"

namespace tulle::testing {
namespace {

constexpr const char* kHost = "127.0.0.1";

Fd connected_to(std::uint16_t port) {
  Fd fd = begin_connect(*SocketAddress::from_numbers(kHost, port));
  EXPECT_TRUE(wait_for(fd.get(), POLLOUT, Deadline(10)));
  return fd;
}

// "hello" is whole, what begins with it is a part, and all else is wrong.
Entrance::Verdict judge(std::string_view said) {
  using Kind = Entrance::Verdict::Kind;
  constexpr std::string_view kWords = "hello";
  if (said.size() > kWords.size() || said != kWords.substr(0, said.size())) return {Kind::wrong, "it is no hello"};
  return {said == kWords ? Kind::whole : Kind::part};
}

struct Place {
  explicit Place(double seconds = Entrance::kSecondsPerStranger)
      : entrance(
            listeners(), judge, [this](const std::string&, const std::string& reason) { reasons.push_back(reason); },
            seconds) {}
  static std::vector<Fd> listeners() {
    std::vector<Fd> one;
    one.push_back(listen_at(*SocketAddress::from_numbers(kHost, 0), {}));
    return one;
  }
  Fd stranger(const std::string& words = "") const {
    Fd fd = connected_to(entrance.port());
    EXPECT_TRUE(send_whole(fd.get(), words, Deadline(5)));
    return fd;
  }
  // Looks until `done()`.
  bool look_until(const std::function<bool()>& done) {
    for (const Deadline deadline(20); !done(); wait_for(entrance.fd(), POLLIN, Deadline(0.01))) {
      if (deadline.has_passed()) return false;
      for (Entrance::Arrival& each : entrance.look()) arrivals.push_back(std::move(each));
    }
    return true;
  }

  std::vector<std::string> reasons;
  std::vector<Entrance::Arrival> arrivals;
  Entrance entrance;
};

TEST(Entrances, GiveThoseWhoHaveSaidTheirWords) {
  Place place;
  const Fd slow = place.stranger("hel"), quick = place.stranger("hello"), lost = place.stranger("GET /");
  ASSERT_TRUE(place.look_until([&] { return place.arrivals.size() == 1 && place.reasons.size() == 1; }));
  ASSERT_TRUE(send_whole(slow.get(), "lo", Deadline(5)));
  ASSERT_TRUE(place.look_until([&] { return place.arrivals.size() == 2; }));
  EXPECT_EQ(place.arrivals[1].said, "hello");
  EXPECT_TRUE(place.arrivals[1].address.starts_with("127.0.0.1:")) << place.arrivals[1].address;
  EXPECT_EQ(place.reasons, std::vector<std::string>{"it is no hello"});
  EXPECT_FALSE(place.entrance.is_busy());
  EXPECT_TRUE(contains(place.entrance.refusals(), "; a connection was refused, of 127.0.0.1:"))
      << place.entrance.refusals();
}

TEST(Entrances, DropThoseWhoSayNothingOrTakeTooLong) {
  Place place(0.2);
  const Fd silent = place.stranger(), slow = place.stranger("hel");
  std::vector<Fd> gone;
  gone.push_back(place.stranger("hel"));
  gone.push_back(place.stranger());  // it has said nothing, and nothing was refused to it
  gone.clear();
  ASSERT_TRUE(place.look_until([&] { return place.reasons.size() == 3; }));
  EXPECT_EQ(place.reasons, (std::vector<std::string>{"it hung up before it said who it is", "it says nothing",
                                                     "it takes too long to say who it is"}));
  EXPECT_TRUE(contains(place.entrance.refusals(), "; 3 connections were refused")) << place.entrance.refusals();
}

TEST(Entrances, SendTheOldestAwayWhereThereAreTooMany) {
  Place place(1000);
  std::vector<Fd> strangers;
  for (std::size_t i = 0; i < most_strangers() + 3; ++i) strangers.push_back(place.stranger("h"));
  ASSERT_TRUE(place.look_until([&] { return place.reasons.size() == 3; }));
  EXPECT_EQ(place.reasons.front(), "too many connect at once");
  EXPECT_TRUE(has_hung_up(strangers[2].get()));
  EXPECT_FALSE(has_hung_up(strangers[3].get()));
  // One that is about to be sent away is heard first.
  ASSERT_TRUE(send_whole(strangers[3].get(), "ello", Deadline(5)));
  const Fd last = place.stranger();
  ASSERT_TRUE(place.look_until([&] { return !place.arrivals.empty(); }));
  EXPECT_EQ(place.reasons.size(), 3u);
}

void allow_descriptors(rlim_t count) {
  rlimit limit = {};
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = count;
  setrlimit(RLIMIT_NOFILE, &limit);
}

std::vector<Fd> all_descriptors() {
  std::vector<Fd> taken;
  while (true) {
    Fd fd(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    if (!fd) return taken;
    taken.push_back(std::move(fd));
  }
}

// Where no descriptor is left a listening socket stays readable for ever: who does not look away keeps a core busy.
TEST(Entrances, RestWhereNoDescriptorIsLeft) {
  const std::vector<int> ends = run_processes(1, 60, [](int) -> std::string {
    allow_descriptors(64);
    Place place;
    Fd caller = begin_connect(*SocketAddress::from_numbers(kHost, place.entrance.port()));
    if (!wait_for(caller.get(), POLLOUT, Deadline(10)) || !send_whole(caller.get(), "hello", Deadline(5)))
      return "no call";
    std::vector<Fd> taken = all_descriptors();
    if (!wait_for(place.entrance.fd(), POLLIN, Deadline(10))) return "the entrance did not see who called";
    if (!place.entrance.look().empty()) return "somebody came in without a descriptor";
    if (!place.entrance.is_busy()) return "the entrance forgot that it rests";
    if (wait_for(place.entrance.fd(), POLLIN, Deadline(0.05))) return "the entrance does not rest";
    if (!contains(place.entrance.refusals(), "had no file descriptor left, of 64")) return place.entrance.refusals();
    taken.clear();
    return place.look_until([&] { return place.arrivals.size() == 1; }) ? "" : "the caller was forgotten";
  });
  EXPECT_EQ(ends, std::vector<int>{0});
}

// A silent stranger has the last descriptor: it goes, and the rank comes in.
TEST(Entrances, TakeADescriptorFromTheOldestStranger) {
  const std::vector<int> ends = run_processes(1, 60, [](int) -> std::string {
    allow_descriptors(64);
    Place place(1000);
    const Fd silent = place.stranger();
    if (!place.look_until([&] { return place.entrance.is_busy(); })) return "the stranger was not let in";
    const Fd caller = place.stranger("hello");
    const std::vector<Fd> taken = all_descriptors();
    return place.look_until([&] { return place.arrivals.size() == 1; }) ? "" : "the caller was not let in";
  });
  EXPECT_EQ(ends, std::vector<int>{0});
}

// Runs `body` with 64 descriptors, beside a process that sends strangers to the port that it tells.
void expect_stands_strangers(const std::function<std::string(const std::function<void(std::uint16_t)>& tell)>& body) {
  int pipe_ends[2];
  ASSERT_EQ(pipe2(pipe_ends, O_CLOEXEC), 0);
  const Fd from(pipe_ends[0]), to(pipe_ends[1]);
  const std::vector<int> ends = run_processes(2, 100, [&](int process) -> std::string {
    if (process == 0) {
      allow_descriptors(64);
      return body([&](std::uint16_t port) {
        if (::write(to.get(), &port, sizeof port) != sizeof port) throw std::runtime_error("pipe");
      });
    }
    std::uint16_t port = 0;
    if (::read(from.get(), &port, sizeof port) != sizeof port) return "nobody told a port";
    std::vector<Fd> strangers;
    for (int i = 0; i < 300; ++i) {
      strangers.push_back(begin_connect(*SocketAddress::from_numbers(kHost, port)));
      wait_for(strangers.back().get(), POLLOUT, Deadline(5));
      if (i % 2 == 0) ::send(strangers.back().get(), "TULLE", 5, MSG_NOSIGNAL);
    }
    std::this_thread::sleep_for(std::chrono::seconds(2));  // meanwhile the ranks work
    return "";
  });
  EXPECT_EQ(ends, (std::vector<int>{0, 0}));
}

TEST(FewDescriptors, AreNotUsedUpAtADoor) {
  expect_stands_strangers([](const auto& tell) -> std::string {
    Door door({.host = kHost});
    tell(door.port());
    std::this_thread::sleep_for(std::chrono::seconds(1));
    return all_descriptors().size() >= 30 ? "" : "too few descriptors are left";
  });
}

TEST(FewDescriptors, AreNotUsedUpAtARanksSocket) {
  expect_stands_strangers([](const auto& tell) -> std::string {
    std::string complaint;
    run_tcp(2, {.lazy_above = 1}, [&](TcpRank& rank) {
      if (rank.transport.rank() == 0) tell(rank.transport.card_of(0).addresses.front().port());
      const Deadline meanwhile(1);
      rank.progress_until([&] { return meanwhile.has_passed(); });
      if (!rank.meet_all()) complaint = "the ranks did not meet";
    });
    return complaint;
  });
}

}  // namespace
}  // namespace tulle::testing
