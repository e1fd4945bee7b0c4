// Admission: members and newcomers make a new group.
//
// How it works: rank 0 calls in who waits and broadcasts how many they are. Then everybody connects with everybody as
// at the beginning of a job, by a rendezvous of two halves: members gather their cards on the group that they have,
// newcomers by the door, and rank 0 joins the halves. At the end members ask each other on the old group whether all
// went well, so that they go on with the same group in either case.
#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <thread>

#include "comm/tcp/door.hpp"
#include "comm/tcp/packed_strings.hpp"
#include "comm/tcp/rendezvous_member.hpp"
#include "comm/tcp/socket.hpp"
#include "comm/tcp/timed_io.hpp"
#include "tulle/base/error.hpp"
#include "tulle/comm/control.hpp"
#include "tulle/comm/profile_file.hpp"

namespace tulle {
namespace {

constexpr std::chrono::milliseconds kBetweenKnocks(50);

Buffer buffer_of(const std::string& text) { return Buffer::copy_of(std::as_bytes(std::span(text))); }
std::string text_of(const Buffer& buffer) { return {reinterpret_cast<const char*>(buffer.data()), buffer.size()}; }

// The half of the members.
class MembersRendezvous final : public RendezvousMember {
 public:
  MembersRendezvous(Communicator& members, Door::Guests* guests, int newcomers, double deadline_seconds)
      : RendezvousMember("admit", members.rank(), members.size() + newcomers),
        members_(members),
        guests_(guests),
        newcomers_(newcomers),
        deadline_seconds_(deadline_seconds) {}

  std::vector<std::string> allgather(const std::string& mine) override {
    std::vector<std::string> all = gather_cards(mine);
    std::vector<std::string> others;
    const std::exception_ptr failure = failure_of([&] {
      if (guests_ != nullptr) others = guests_->take_cards(members_.size(), Deadline(deadline_seconds_));
    });
    fail_together(members_, failure);
    const Buffer packed = broadcast_bytes(members_, buffer_of(pack_strings(others)));
    others = unpack_strings(text_of(packed), static_cast<std::size_t>(newcomers_), "admit: what rank 0 sent");
    all.insert(all.end(), others.begin(), others.end());
    if (guests_ != nullptr) guests_->hand_out(all, Deadline(deadline_seconds_));
    return all;
  }

  /// For who failed before it had a card, and for whom the others would wait.
  void decline() {
    if (!has_met_) gather_cards("");
  }

 private:
  std::vector<std::string> gather_cards(const std::string& mine) {
    has_met_ = true;
    std::vector<std::string> cards;
    for (const Buffer& card : gather_bytes(members_, buffer_of(mine))) cards.push_back(text_of(card));
    const auto declined = std::ranges::find(cards, "");
    if (declined == cards.end()) return cards;
    const auto rank = static_cast<int>(declined - cards.begin());
    throw Error(ErrorKind::peer_failed, fmt::format("rank {} cannot listen for newcomers", rank)).with_peer(rank);
  }

  Communicator& members_;
  Door::Guests* guests_;
  int newcomers_;
  double deadline_seconds_;
  bool has_met_ = false;
};

// The half of one newcomer, which has been called in.
class NewcomerRendezvous final : public RendezvousMember {
 public:
  NewcomerRendezvous(int door, int rank, int size, const JoinOptions& where)
      : RendezvousMember("join", rank, size), door_(door), where_(where) {}

  std::string meeting_host() const override { return where_.host; }
  std::vector<std::string> allgather(const std::string& mine) override {
    const Deadline deadline(where_.deadline_seconds);
    std::optional<std::string> cards;
    if (send_note(door_, NoteKind::card, mine, deadline)) cards = receive_note(door_, NoteKind::cards, deadline);
    if (!cards) throw Error(ErrorKind::peer_failed, "the admission failed").with_peer(0).at_rank(rank());
    return unpack_strings(*cards, static_cast<std::size_t>(size()), "join: what the door sent");
  }

 private:
  int door_;
  const JoinOptions& where_;
};

// What members know and newcomers do not. Ends when everybody has it.
void share_profile(Communicator& group, const Profile& profile) {
  const std::string text = profile_text({.profile = profile, .first_quartile = profile, .third_quartile = profile});
  const Buffer sent = broadcast_bytes(group, buffer_of(group.rank() == 0 ? text : ""));
  group.set_profile(parse_profile(text_of(sent), "admission").profile);
  barrier(group);
}

int call_in(Communicator& members, Door::Guests* guests) {
  const std::exception_ptr failure = failure_of([&] {
    if ((members.rank() == 0) == (guests != nullptr)) return;
    throw Error(ErrorKind::bad_input, members.rank() == 0 ? "admit: rank 0 needs a door"
                                                          : "admit: rank 0 has the door, the others have none");
  });
  fail_together(members, failure);
  std::string count;
  append_u32(count, guests != nullptr ? static_cast<std::uint32_t>(guests->call_in()) : 0);
  return static_cast<int>(u32_at(text_of(broadcast_bytes(members, buffer_of(count))), 0));
}

Communicator connect_with(Rendezvous& rendezvous, const TcpOptions& options, const Profile& profile) {
  Communicator group = connect(rendezvous, options);
  share_profile(group, profile);
  return group;
}

}  // namespace

Communicator admit(Communicator& members, Door* door, const TcpOptions& options) {
  Door::Guests* const guests = door != nullptr ? door->guests_.get() : nullptr;
  const int newcomers = call_in(members, guests);
  if (newcomers == 0) return members;
  std::optional<Communicator> group;
  MembersRendezvous rendezvous(members, guests, newcomers, options.deadline_seconds);
  const std::exception_ptr failure = failure_of([&] { group = connect_with(rendezvous, options, members.profile()); });
  if (failure) (void)failure_of([&] { rendezvous.decline(); });
  if (guests != nullptr) guests->send_away();
  fail_together(members, failure);
  group->set_default_deadline(members.context()->default_deadline_seconds);
  return std::move(*group);
}

namespace {

// A newcomer's place, once it is called in; nothing where the door is not there or goes away.
std::optional<Communicator> try_to_join(const SocketAddress& address, const JoinOptions& where,
                                        const TcpOptions& options, const Deadline& deadline) {
  const Fd door = begin_connect(address);
  if (!wait_for(door.get(), POLLOUT, deadline)) return std::nullopt;
  if (const int code = pending_error(door.get()); code != 0) {
    throw Error(ErrorKind::system, describe_errno("connect", code));
  }
  if (is_connected_with_itself(door.get())) return std::nullopt;
  if (!send_whole(door.get(), knock(), deadline)) return std::nullopt;
  const std::optional<Note> call = receive_note(door.get(), deadline);
  if (call && call->kind == NoteKind::refused) throw Error(ErrorKind::mismatch, call->content);
  if (!call || call->kind != NoteKind::call) return std::nullopt;
  if (!send_note(door.get(), NoteKind::here, "", deadline)) return std::nullopt;
  const auto place = receive_note(door.get(), NoteKind::place, deadline);
  if (!place || place->size() != 8) return std::nullopt;
  NewcomerRendezvous rendezvous(door.get(), static_cast<int>(u32_at(*place, 0)), static_cast<int>(u32_at(*place, 4)),
                                where);
  return connect_with(rendezvous, options, {});
}

}  // namespace

Communicator join(const JoinOptions& where, const TcpOptions& options) {
  if (where.host.empty() || where.port == 0) throw Error(ErrorKind::bad_input, "join: a host and a port are needed");
  const Deadline deadline(where.deadline_seconds);
  std::string last_failure = "nobody called it in";
  do {
    for (const SocketAddress& address : SocketAddress::resolve(where.host, where.port)) {
      try {
        if (std::optional<Communicator> group = try_to_join(address, where, options, deadline)) return *group;
      } catch (const Error& error) {
        if (error.kind() == ErrorKind::mismatch || error.kind() == ErrorKind::bad_input) throw;
        last_failure = error.what();
      }
    }
    std::this_thread::sleep_for(kBetweenKnocks);
  } while (!deadline.has_passed());
  throw Error(ErrorKind::deadline, fmt::format("no job let this process in at {}:{} within {} s: {}", where.host,
                                               where.port, where.deadline_seconds, last_failure));
}

}  // namespace tulle
