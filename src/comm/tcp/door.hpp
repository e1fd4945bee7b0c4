// Both sides of a door: who waits there, and what is said until a newcomer has everybody's card.
//
// How it works: a newcomer connects and *knocks*: magic, what it speaks, its job, and its *card*. Then it waits. A
// thread of the door *calls* it once a second, and it says that it is *here*. Who does not answer in time is hung up
// on, so that a process that was stopped, or whose host died, is not let in. All that is done beside the job: when the
// job is ready it takes those who have just answered, and sends each its *place*: a rank, the job's new size, and the
// cards of all.
//
// Knock: "TULLEDOR", kDoorVersion, kTcpVersion, start_of_messages(), length of the job's name, length of the card, as
// u32; the job's name; the card. Everything else is a *note*: u32 kind, u32 length, content.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "comm/tcp/card.hpp"
#include "comm/tcp/clock.hpp"
#include "comm/tcp/entrance.hpp"
#include "comm/tcp/fd.hpp"
#include "comm/tcp/fork_watch.hpp"
#include "tulle/comm/admission.hpp"

namespace tulle {

enum class NoteKind : std::uint32_t { call = 1, here = 2, place = 3, refused = 4 };

/// False where the other side is gone or the time is over.
bool send_note(int fd, NoteKind kind, const std::string& content, const Deadline& deadline);

struct Note {
  NoteKind kind;
  std::string content;
};
/// The next note, or nothing where the other side is gone, says what is none, or the time is over.
std::optional<Note> receive_note(int fd, const Deadline& deadline);

/// What a newcomer says first.
std::string knock(const std::string& job, const std::string& card);

/// A newcomer's rank in the new group, and the cards of all.
struct Place {
  int rank = 0;
  std::vector<std::string> cards;
};
std::string to_text(const Place& place);
/// Throws bad_message.
Place place_from(const std::string& text);

/// The side of the job. Functions may be called by one thread at a time, beside the door's own.
class Door::Guests final : private ForkAware {
 public:
  explicit Guests(const DoorOptions& options);
  ~Guests();

  std::uint16_t port() const { return entrance_.port(); }
  /// Those that could be called in now.
  int waiting();
  /// Takes those who have just said that they are here, and gives their number. Those whose options are not the job's
  /// are told and hung up on. Never waits.
  int call_in(const TcpOptions& options);
  /// Of those who were called in.
  std::vector<std::string> cards() const;
  /// Tells each its place; `all` has its card too, behind those of `members`. Throws peer_failed naming the rank that
  /// one would have had who does not take it.
  void hand_out(const std::vector<std::string>& all, int members, const Deadline& deadline);
  /// Throws peer_failed naming the rank of one who was called in and is gone, which it would have had.
  void require_all_there(int members) const;
  /// Hangs up on those who were called in: where they have no place they knock again.
  void send_away() { called_in_.clear(); }

 private:
  struct Guest {
    Fd fd;
    std::string card;
    std::string said = {};        ///< of a note
    double called_seconds = 0;    ///< when the call went out that waits for an answer; 0: none does
    double answered_seconds = 0;  ///< when the last answer came; 0: none has
    bool is_ready(double now) const;
  };

  void work();
  void look();
  void take(Entrance::Arrival arrival);
  std::string why_not(const std::string& said) const;
  void attend(Guest& guest) const;
  static void hear(Guest& guest);
  static void call(Guest& guest);

  void hold_for_fork() noexcept override { mutex_.lock(); }
  void release_after_fork() noexcept override { mutex_.unlock(); }
  void forget_in_child() noexcept override;

  const DoorOptions options_;
  std::mutex mutex_;  ///< of the entrance and of those who wait
  Entrance entrance_;
  std::vector<Guest> waiting_;  ///< the oldest first
  std::vector<Guest> called_in_;
  bool is_in_child_ = false;
  Fd end_;  ///< becomes readable when the thread is to end
  std::thread thread_;
  ForkWatch fork_watch_;
};

}  // namespace tulle
