// Admission: members and newcomers make a new group.
//
// How it works: the door has received newcomers and has their cards (door.hpp). Rank 0 takes those that have just
// answered and broadcasts how many they are. Then everybody connects with everybody as at the beginning of a job, by a
// rendezvous of two halves: members gather their cards on the group that they have, and rank 0 joins the halves and
// tells each newcomer its place. At the end members ask each other on the old group whether all went well, so that they
// go on with the same group in either case.
#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <thread>

#include "base/require_deadline.hpp"
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
// A newcomer has just said that it is here, so that it connects at once or is gone. Longer: one that is stopped in this
// moment holds up the job. Shorter: a loaded host is taken for a dead one.
constexpr double kSecondsToConnect = 10;

Buffer buffer_of(const std::string& text) { return Buffer::copy_of(std::as_bytes(std::span(text))); }
std::string text_of(const Buffer& buffer) { return {reinterpret_cast<const char*>(buffer.data()), buffer.size()}; }

// The half of the members.
class MembersRendezvous final : public RendezvousMember {
 public:
  MembersRendezvous(Communicator& members, Door::Guests* guests, int newcomers)
      : RendezvousMember("admit", members.rank(), members.size() + newcomers),
        members_(members),
        guests_(guests),
        newcomers_(newcomers) {}

  std::vector<std::string> allgather(const std::string& mine) override {
    std::vector<std::string> all = gather_cards(mine);
    std::vector<std::string> others = guests_ != nullptr ? guests_->cards() : std::vector<std::string>();
    const std::exception_ptr failure = failure_of([&] {
      if (guests_ == nullptr) return;
      std::vector<std::string> of_all = all;
      of_all.insert(of_all.end(), others.begin(), others.end());
      guests_->hand_out(of_all, members_.size(), Deadline(kSecondsToConnect));
    });
    fail_together(members_, failure);
    const Buffer packed = broadcast_bytes(members_, buffer_of(pack_strings(others)));
    others = unpack_strings(text_of(packed), static_cast<std::size_t>(newcomers_), "admit: what rank 0 sent");
    all.insert(all.end(), others.begin(), others.end());
    return all;
  }

  void require_all_there() const override {
    if (guests_ != nullptr) guests_->require_all_there(members_.size());
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
  bool has_met_ = false;
};

// The half of one newcomer: it learns its rank when it is called in.
class NewcomerRendezvous final : public Rendezvous {
 public:
  NewcomerRendezvous(const JoinOptions& where, const Deadline& deadline) : where_(where), deadline_(deadline) {}

  int rank() const override { return place_.rank; }
  int size() const override { return std::max(static_cast<int>(place_.cards.size()), 2); }
  std::string meeting_host() const override { return where_.host; }
  std::vector<std::string> allgather(const std::string& mine) override {
    door_ = find_door();
    if (!send_whole(door_.get(), knock(where_.job, mine), deadline_)) throw_gone();
    for (;;) {
      const std::optional<Note> note = receive_note(door_.get(), deadline_);
      if (!note) throw_gone();
      if (note->kind == NoteKind::refused) throw Error(ErrorKind::mismatch, note->content);
      if (note->kind == NoteKind::call && !send_note(door_.get(), NoteKind::here, "", deadline_)) throw_gone();
      if (note->kind != NoteKind::place) continue;
      place_ = place_from(note->content);
      return place_.cards;
    }
  }

 private:
  Fd find_door() const {
    std::string failures;
    for (const SocketAddress& address : SocketAddress::resolve(where_.host, where_.port, deadline_)) {
      try {
        Fd door = begin_connect(address);
        if (!wait_for(door.get(), POLLOUT, deadline_)) throw_gone();
        const int code = pending_error(door.get());
        if (code != 0) throw Error(ErrorKind::system, describe_errno("connect", code));
        if (!is_connected_with_itself(door.get())) return door;
      } catch (const Error& error) {
        failures += fmt::format("{}{}", failures.empty() ? "" : "; ", error.what());
      }
    }
    throw Error(ErrorKind::system, failures);
  }

  [[noreturn]] static void throw_gone() { throw Error(ErrorKind::peer_failed, "nobody called it in").with_peer(0); }

  const JoinOptions& where_;
  const Deadline& deadline_;
  Fd door_;  ///< open until this process is a rank: the job sees by it that it is alive
  Place place_;
};

// What members know and newcomers do not. Ends when everybody has it.
void share_profile(Communicator& group, const Profile& profile) {
  const std::string text = profile_text({.profile = profile, .first_quartile = profile, .third_quartile = profile});
  const Buffer sent = broadcast_bytes(group, buffer_of(group.rank() == 0 ? text : ""));
  group.set_profile(parse_profile(text_of(sent), "admission").profile);
  barrier(group);
}

int call_in(Communicator& members, Door::Guests* guests, const TcpOptions& options) {
  const std::exception_ptr failure = failure_of([&] {
    if ((members.rank() == 0) == (guests != nullptr)) return;
    throw Error(ErrorKind::bad_input, members.rank() == 0 ? "admit: rank 0 needs a door"
                                                          : "admit: rank 0 has the door, the others have none");
  });
  fail_together(members, failure);
  std::string count;
  append_u32(count, guests != nullptr ? static_cast<std::uint32_t>(guests->call_in(options)) : 0);
  return static_cast<int>(u32_at(text_of(broadcast_bytes(members, buffer_of(count))), 0));
}

Communicator connect_with(Rendezvous& rendezvous, TcpOptions options, const Profile& profile) {
  options.deadline_seconds = std::min(options.deadline_seconds, kSecondsToConnect);
  Communicator group = connect(rendezvous, options);
  const double usual_deadline = group.context()->default_deadline_seconds;
  group.set_default_deadline(options.deadline_seconds);
  share_profile(group, profile);
  group.set_default_deadline(usual_deadline);
  return group;
}

}  // namespace

Communicator admit(Communicator& members, Door* door, const TcpOptions& options) {
  Door::Guests* const guests = door != nullptr ? door->guests_.get() : nullptr;
  int newcomers = 0;
  try {
    newcomers = call_in(members, guests, options);
  } catch (...) {
    if (guests != nullptr) guests->send_away();  // they knock again
    throw;
  }
  if (newcomers == 0) return members;
  std::optional<Communicator> group;
  MembersRendezvous rendezvous(members, guests, newcomers);
  const std::exception_ptr failure = failure_of([&] { group = connect_with(rendezvous, options, members.profile()); });
  if (failure) (void)failure_of([&] { rendezvous.decline(); });
  if (guests != nullptr) guests->send_away();
  fail_together(members, failure);
  group->set_default_deadline(members.context()->default_deadline_seconds);
  return std::move(*group);
}

Communicator join(const JoinOptions& where, const TcpOptions& options) {
  if (where.host.empty() || where.port == 0) throw Error(ErrorKind::bad_input, "join: a host and a port are needed");
  // 0 is one try, as of a caller whose own deadline has passed.
  if (where.deadline_seconds != 0) require_deadline(where.deadline_seconds, "JoinOptions: the deadline");
  const Deadline deadline(where.deadline_seconds);
  std::string last_failure;
  do {
    try {
      NewcomerRendezvous rendezvous(where, deadline);
      return connect_with(rendezvous, options, {});
    } catch (const Error& error) {
      if (error.kind() == ErrorKind::mismatch || error.kind() == ErrorKind::bad_input) throw;
      last_failure = error.what();
    }
    std::this_thread::sleep_for(kBetweenKnocks);
  } while (!deadline.has_passed());
  throw Error(ErrorKind::deadline, fmt::format("no job let this process in at {}:{} within {} s: {}", where.host,
                                               where.port, where.deadline_seconds, last_failure));
}

}  // namespace tulle
