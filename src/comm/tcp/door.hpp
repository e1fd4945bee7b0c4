// Both sides of a door: who waits there, and what is said until a newcomer has everybody's card.
//
// How it works: a newcomer connects and *knocks*: magic, and what it speaks. Then it waits. When the job is ready the
// door *calls* those who wait; who is *here* gets its *place*, a rank and the job's new size, and gives its *card* for
// the *cards* of all. Who does not answer a call in time is hung up on, so that a process that was stopped, or whose
// host died, is never counted.
//
// Knock: "TULLEDOR", kDoorVersion, kTcpVersion, start_of_messages(), as u32. Everything else is a *note*: u32 kind, u32
// length, content.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "comm/tcp/clock.hpp"
#include "comm/tcp/fd.hpp"
#include "tulle/comm/admission.hpp"

namespace tulle {

enum class NoteKind : std::uint32_t { call = 1, here = 2, place = 3, card = 4, cards = 5, refused = 6 };

/// False where the other side is gone or the time is over.
bool send_note(int fd, NoteKind kind, const std::string& content, const Deadline& deadline);

struct Note {
  NoteKind kind;
  std::string content;
};
/// The next note, or nothing where the other side is gone, says what is none, or the time is over.
std::optional<Note> receive_note(int fd, const Deadline& deadline);
/// The same, and nothing where it is of another kind.
std::optional<std::string> receive_note(int fd, NoteKind kind, const Deadline& deadline);

/// What a newcomer says first.
std::string knock();

/// The side of the job.
class Door::Guests {
 public:
  explicit Guests(const DoorOptions& options);

  std::uint16_t port() const;
  /// Lets in who connected, reads what they say, drops who is gone.
  void look();
  int waiting() const;
  /// Calls those who wait and keeps those who answer; they are ranks from `first_rank` on when all have their places.
  /// Gives their number.
  int call_in();
  /// Tells each its place and takes its card. Throws peer_failed naming the rank that one would have had.
  std::vector<std::string> take_cards(int members, const Deadline& deadline);
  /// What everybody needs to connect with everybody. They are no longer guests afterwards.
  void hand_out(const std::vector<std::string>& cards, const Deadline& deadline);
  /// Hangs up on those who were called in: they knock again.
  void send_away();

 private:
  struct Guest {
    Fd fd;
    std::string said = {};
    bool has_knocked = false;
  };

  void let_in();
  static void listen_to(Guest& guest);
  static void judge_knock(Guest& guest);

  Fd listener_;
  double answer_seconds_;
  std::vector<Guest> waiting_;
  std::vector<Fd> called_in_;
};

}  // namespace tulle
