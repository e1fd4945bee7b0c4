// Processes join a job that is under way.
#include <poll.h>

#include <atomic>

#include "comm/tcp/door.hpp"
#include "comm/tcp/timed_io.hpp"
#include "comm_tcp/processes.hpp"
#include "comm_tcp/tcp_fixture.hpp"
#include "tulle/comm/admission.hpp"
#include "tulle/comm/control.hpp"

namespace tulle::testing {
namespace {

constexpr const char* kHost = "127.0.0.1";

// A door of rank 0, and none elsewhere.
struct MaybeDoor {
  MaybeDoor(const Communicator& members, const DoorOptions& options) {
    if (members.rank() == 0) door.emplace(options);
  }
  Door* get() { return door ? &*door : nullptr; }
  std::optional<Door> door;
};

// The port of a door, for who comes from outside.
struct Address {
  std::atomic<std::uint16_t> port = 0;
  std::uint16_t wait() const {
    while (port == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return port;
  }
};

// Everybody tells who it is: the ranks of a group that works give 0, 1, 2, ...
std::vector<int> roll_call(Communicator& group) {
  std::vector<int> ranks;
  const std::string mine = std::to_string(group.rank());
  for (const Buffer& each : gather_bytes(group, Buffer::copy_of(std::as_bytes(std::span(mine))))) {
    ranks.push_back(std::stoi(std::string(reinterpret_cast<const char*>(each.data()), each.size())));
  }
  return ranks;
}

std::vector<int> first_numbers(int count) {
  std::vector<int> numbers;
  for (int i = 0; i < count; ++i) numbers.push_back(i);
  return numbers;
}

// Lets everybody in who wants to until the group has `size` ranks.
Communicator admit_until(Communicator members, MaybeDoor& door, int size) {
  while (members.size() < size) members = admit(members, door.get());
  return members;
}

using MemberBody = std::function<void(Communicator& members, MaybeDoor& door)>;

// Members are connected; each of `newcomers` threads runs `join_in(port)`.
void run_job(int members, int newcomers, const MemberBody& body, const std::function<void(std::uint16_t)>& join_in,
             const DoorOptions& door_options = {.host = kHost}) {
  Lobby lobby(members);
  Address address;
  run_ranks(members + newcomers, [&](int number) {
    if (number >= members) return join_in(address.wait());
    LobbyRendezvous rendezvous(lobby, number);
    Communicator group = connect(rendezvous);
    MaybeDoor door(group, door_options);
    if (number == 0) address.port = door.door->port();
    body(group, door);
  });
}

void expect_group(Communicator& group, int size) {
  EXPECT_EQ(group.size(), size);
  EXPECT_EQ(roll_call(group), first_numbers(size));
}

// A knock that is in order, of a process that connects with nobody.
std::string good_knock(const std::string& job = "") {
  return knock(job, encode_card({.detach_bytes = TcpOptions().detach_bytes,
                                 .pull_bytes = TcpOptions().pull_bytes,
                                 .host = "elsewhere",
                                 .addresses = {*SocketAddress::from_numbers(kHost, 9)}}));
}

Fd connected_to(std::uint16_t port) {
  Fd fd = begin_connect(*SocketAddress::from_numbers(kHost, port));
  EXPECT_TRUE(wait_for(fd.get(), POLLOUT, Deadline(10)));
  return fd;
}

std::optional<NoteKind> next_note(const Fd& fd) {
  const std::optional<Note> note = receive_note(fd.get(), Deadline(10));
  return note ? std::optional(note->kind) : std::nullopt;
}

TEST(Admission, OfNobodyGivesTheSameGroup) {
  run_job(3, 0,
          [](Communicator& members, MaybeDoor& door) {
            Communicator group = admit(members, door.get());
            EXPECT_EQ(group.context(), members.context());
            expect_group(group, 3);
          },
          {});
}

TEST(Admission, NumbersNewcomersAfterMembers) {
  for (const int members : {1, 2, 3}) {
    for (const int newcomers : {1, 3}) {
      run_job(
          members, newcomers,
          [&](Communicator& group, MaybeDoor& door) {
            const int before = group.rank();
            Communicator grown = admit_until(group, door, members + newcomers);
            EXPECT_EQ(grown.rank(), before);
            expect_group(grown, members + newcomers);
            expect_group(group, members);  // the old one goes on
          },
          [&](std::uint16_t port) {
            Communicator group = join({.host = kHost, .port = port});
            EXPECT_GE(group.rank(), members);
            while (group.size() < members + newcomers) group = admit(group, nullptr);
            expect_group(group, members + newcomers);
          });
    }
  }
}

TEST(Admission, GivesNewcomersTheProfile) {
  run_job(
      2, 1,
      [](Communicator& members, MaybeDoor& door) {
        Profile profile = members.profile();
        profile.alpha_seconds = 0.125;
        members.set_profile(profile);
        members.set_default_deadline(17);
        const Communicator group = admit_until(members, door, 3);
        EXPECT_EQ(group.profile(), profile);
        EXPECT_EQ(group.context()->default_deadline_seconds, 17);
      },
      [](std::uint16_t port) { EXPECT_EQ(join({.host = kHost, .port = port}).profile().alpha_seconds, 0.125); });
}

TEST(Admission, WantsADoorOnRankZeroAlone) {
  run_job(2, 0,
          [](Communicator& members, MaybeDoor&) {
            EXPECT_TRUE(contains(error_of([&] { admit(members, nullptr); }), "rank 0 needs a door"));
            Door door({.host = kHost});
            EXPECT_TRUE(contains(error_of([&] { admit(members, &door); }), "rank 0 has the door"));
            expect_group(members, 2);
          },
          {});
}

TEST(Admission, IsNotHeldUpByStrangersAndThoseWhoLeft) {
  run_job(
      2, 1,
      [](Communicator& members, MaybeDoor& door) {
        if (members.rank() == 0) {
          const auto address = *SocketAddress::from_numbers(kHost, door.door->port());
          const Deadline deadline(10);
          const Fd stranger = begin_connect(address);
          ASSERT_TRUE(wait_for(stranger.get(), POLLOUT, deadline));
          ASSERT_TRUE(send_whole(stranger.get(), "GET / HTTP/1.1\r\n", deadline));
          const Fd silent = begin_connect(address);
          {
            const Fd gone = begin_connect(address);
            ASSERT_TRUE(wait_for(gone.get(), POLLOUT, deadline));
            ASSERT_TRUE(send_whole(gone.get(), good_knock(), deadline));
          }
          // One that knocks and then never answers, as a process does that was stopped.
          const Fd stopped = begin_connect(address);
          ASSERT_TRUE(wait_for(stopped.get(), POLLOUT, deadline));
          ASSERT_TRUE(send_whole(stopped.get(), good_knock(), deadline));
          while (door.door->waiting() < 1) std::this_thread::sleep_for(std::chrono::milliseconds(1));
          barrier(members);
          Communicator group = admit(members, door.get());
          expect_group(group, 3);
        } else {
          barrier(members);
          Communicator group = admit(members, door.get());
          expect_group(group, 3);
        }
      },
      [](std::uint16_t port) {
        Communicator group = join({.host = kHost, .port = port});
        expect_group(group, 3);
      },
      {.host = kHost, .answer_seconds = 0.3});
}

TEST(Admission, ThatFailsLeavesTheMembersTheirGroup) {
  run_job(
      3, 1,
      [](Communicator& members, MaybeDoor& door) {
        while (members.rank() == 0 && door.door->waiting() < 1) std::this_thread::yield();
        barrier(members);
        const std::string error = error_of([&] { admit(members, door.get()); });
        EXPECT_TRUE(contains(error, "would be rank 3 left on its way in")) << error;
        expect_group(members, 3);
        EXPECT_EQ(admit(members, door.get()).size(), 3);
      },
      [](std::uint16_t port) {  // dies when it has its place
        const Fd door = begin_connect(*SocketAddress::from_numbers(kHost, port));
        const Deadline deadline(20);
        ASSERT_TRUE(wait_for(door.get(), POLLOUT, deadline));
        ASSERT_TRUE(send_whole(door.get(), good_knock(), deadline));
        ASSERT_TRUE(next_note(door) == NoteKind::call);
        ASSERT_TRUE(send_note(door.get(), NoteKind::here, "", deadline));
        ASSERT_TRUE(next_note(door) == NoteKind::place);
      });
}

TEST(Admission, OfAMemberThatCannotListenFailsForAll) {
  const Fd taken = listen_at(SocketAddress::any(), {});
  const std::string port_in_use = std::to_string(address_of_this_end(taken.get()).port());
  run_job(
      3, 1,
      [&](Communicator& members, MaybeDoor& door) {
        while (members.rank() == 0 && door.door->waiting() < 1) std::this_thread::yield();
        barrier(members);
        const TcpOptions options{.ports = members.rank() == 1 ? port_in_use : ""};
        EXPECT_NE(error_of([&] { admit(members, door.get(), options); }), "no error");
        expect_group(members, 3);
        Communicator group = admit_until(members, door, 4);
        expect_group(group, 4);
      },
      [](std::uint16_t port) {
        Communicator group = join({.host = kHost, .port = port});
        expect_group(group, 4);
      });
}

TEST(Doors, ListenWhereTheyAreToldTo) {
  EXPECT_NE(error_of([] { const Door door({.host = "no.such.host.invalid"}); }), "no error");
  EXPECT_NE(Door().port(), 0);
}

TEST(Joining, SaysThatNobodyLetItIn) {
  Door door({.host = kHost});
  const std::string error = error_of([&] { join({.host = kHost, .port = door.port(), .deadline_seconds = 0.2}); });
  EXPECT_TRUE(contains(error, "no job let this process in at 127.0.0.1:")) << error;
  EXPECT_TRUE(contains(error_of([] { join({}); }), "a host and a port are needed"));
}

TEST(Joining, IsToldThatVersionsDiffer) {
  Door door({.host = kHost});
  const Fd fd = begin_connect(*SocketAddress::from_numbers(kHost, door.port()));
  const Deadline deadline(20);
  ASSERT_TRUE(wait_for(fd.get(), POLLOUT, deadline));
  std::string other = good_knock();
  other[12] = 99;
  ASSERT_TRUE(send_whole(fd.get(), other, deadline));
  const std::optional<Note> note = receive_note(fd.get(), deadline);
  ASSERT_TRUE(note);
  EXPECT_EQ(note->kind, NoteKind::refused);
  EXPECT_TRUE(contains(note->content, "speaks versions 2, 99")) << note->content;
}

TEST(Joining, IsToldThatItIsAnotherJob) {
  Door door({.host = kHost, .job = "night"});
  const std::string error = error_of([&] { join({.host = kHost, .port = door.port(), .job = "day"}); });
  EXPECT_TRUE(contains(error, "wants to join the job day, this is the job night")) << error;
}

TEST(Joining, IsToldThatItsOptionsDiffer) {
  run_job(
      1, 1,
      [](Communicator& members, MaybeDoor& door) {
        while (door.door->waiting() < 1) std::this_thread::yield();
        EXPECT_EQ(admit(members, door.get()).size(), 1);
      },
      [](std::uint16_t port) {
        const std::string error = error_of([&] { join({.host = kHost, .port = port}, {.detach_bytes = 1234}); });
        EXPECT_TRUE(contains(error, "detach_bytes")) << error;
      });
}

TEST(Doors, AreNotHeldUpByManyStrangers) {
  for (const std::string words : {"", "TULLEDOR", "GET / HTTP/1.1\r\n\r\n"}) {
    std::vector<Fd> strangers;
    run_job(
        1, 1,
        [&](Communicator& members, MaybeDoor& door) {
          expect_group(members, 1);
          Communicator group = admit_until(members, door, 2);
          expect_group(group, 2);
        },
        [&](std::uint16_t port) {
          for (std::size_t i = 0; i < most_strangers() + 50; ++i) {
            strangers.push_back(connected_to(port));
            send_whole(strangers.back().get(), words, Deadline(5));
          }
          Communicator group = join({.host = kHost, .port = port});
          expect_group(group, 2);
        });
  }
}

// It knows what newcomers say, which is no secret, and then says nothing, at any place.
TEST(Doors, AreNotHeldUpByAGuestThatFallsSilent) {
  for (const int answers : {0, 1}) {
    std::atomic<bool> was_asked = false;
    run_job(
        3, 1,
        [&](Communicator& members, MaybeDoor& door) {
          Fd silent;
          if (members.rank() == 0) {
            silent = connected_to(door.door->port());
            ASSERT_TRUE(send_whole(silent.get(), good_knock(), Deadline(10)));
            for (int i = 0; i < answers; ++i) {
              ASSERT_EQ(next_note(silent), NoteKind::call);
              ASSERT_TRUE(send_note(silent.get(), NoteKind::here, "", Deadline(10)));
            }
            ASSERT_EQ(next_note(silent), NoteKind::call);  // which it does not answer
            // When its answer is late it is not counted any more.
            while (door.door->waiting() > 0) std::this_thread::sleep_for(std::chrono::milliseconds(10));
          }
          barrier(members);
          EXPECT_EQ(admit(members, door.get()).size(), 3);
          if (members.rank() == 0) was_asked = true;
          Communicator group = admit_until(members, door, 4);
          expect_group(group, 4);
        },
        [&](std::uint16_t port) {
          while (!was_asked) std::this_thread::sleep_for(std::chrono::milliseconds(1));
          Communicator group = join({.host = kHost, .port = port});
          expect_group(group, 4);
        },
        {.host = kHost, .answer_seconds = 1000});
  }
}

TEST(Doors, HangUpOnAGuestThatDoesNotAnswer) {
  Door door({.host = kHost, .answer_seconds = 0.2});
  const Fd silent = connected_to(door.port());
  ASSERT_TRUE(send_whole(silent.get(), good_knock(), Deadline(10)));
  ASSERT_EQ(next_note(silent), NoteKind::call);
  EXPECT_EQ(next_note(silent), std::nullopt);
  EXPECT_TRUE(has_hung_up(silent.get()));
  EXPECT_EQ(door.waiting(), 0);
}

// A child has a copy of the door and of its sockets, and not of its thread.
TEST(Doors, StayOpenWhenAForkedChildEnds) {
  auto door = std::make_unique<Door>(DoorOptions{.host = kHost});
  const std::uint16_t port = door->port();
  const std::vector<int> ends = run_processes(1, 60, [&](int) -> std::string {
    door.reset();
    return "";
  });
  EXPECT_EQ(ends, std::vector<int>{0});
  const Fd guest = connected_to(port);
  ASSERT_TRUE(send_whole(guest.get(), good_knock(), Deadline(10)));
  EXPECT_EQ(next_note(guest), NoteKind::call);
}

TEST(Doors, KeepABoundedNumberOfGuests) {
  Door door({.host = kHost});
  std::vector<Fd> guests;
  for (std::size_t i = 0; i < most_strangers() + 20; ++i) {
    guests.push_back(connected_to(door.port()));
    ASSERT_TRUE(send_whole(guests.back().get(), good_knock(), Deadline(10)));
    ASSERT_EQ(next_note(guests.back()), NoteKind::call);
  }
  const auto is_gone = [](const Fd& fd) { return has_hung_up(fd.get()); };
  for (const Deadline deadline(10); !deadline.has_passed() && std::ranges::count_if(guests, is_gone) < 20;) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_EQ(std::ranges::count_if(guests, is_gone), 20);
  EXPECT_TRUE(is_gone(guests.front()));
  EXPECT_FALSE(is_gone(guests.back()));
}

// A file that appears whole.
void write_file(const std::string& path, int number) {
  FILE* const file = fopen((path + ".new").c_str(), "w");
  fprintf(file, "%d\n", number);
  fclose(file);
  rename((path + ".new").c_str(), path.c_str());
}

int await_file(const std::string& path) {
  for (const Deadline deadline(30); !deadline.has_passed(); usleep(1000)) {
    int number = 0;
    FILE* const file = fopen(path.c_str(), "r");
    if (file == nullptr) continue;
    const bool is_read = fscanf(file, "%d", &number) == 1;
    fclose(file);
    if (is_read) return number;
  }
  return 0;
}

// A worker is killed, and another process takes its place. The group without it is split off before.
TEST(Admission, ReplacesAProcessThatWasKilled) {
  const TemporaryDirectory directory;
  const auto file_of = [&](int number) { return directory.path() + "/door." + std::to_string(number); };
  const std::vector<int> ends = run_processes(4, 60, [&](int number) -> std::string {
    if (number == 3) {  // the newcomer
      Communicator group = join({.host = kHost, .port = static_cast<std::uint16_t>(await_file(file_of(0)))});
      return roll_call(group) == first_numbers(3) ? "" : "the roll call of the newcomer is wrong";
    }
    const auto rendezvous = directory_rendezvous({.path = directory.path(), .rank = number, .size = 3});
    Communicator job = connect(*rendezvous);
    Communicator living = job.split(number == 2 ? 1 : 0);
    if (number == 2 && await_file(file_of(0)) != 0 && await_file(file_of(1)) != 0) raise(SIGKILL);
    MaybeDoor door(living, {.host = kHost});
    write_file(file_of(number), number == 0 ? door.door->port() : 1);
    Communicator group = admit_until(living, door, 3);
    return roll_call(group) == first_numbers(3) ? "" : "the roll call is wrong";
  });
  EXPECT_EQ(ends, (std::vector<int>{0, 0, -SIGKILL, 0}));
}

}  // namespace
}  // namespace tulle::testing
