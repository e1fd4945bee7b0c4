#include "comm/tcp/door.hpp"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <utility>

#include "comm/tcp/card.hpp"
#include "comm/tcp/packed_strings.hpp"
#include "comm/tcp/socket.hpp"
#include "comm/tcp/timed_io.hpp"
#include "tulle/base/error.hpp"

namespace tulle {
namespace {

constexpr std::string_view kMagic = "TULLEDOR";
constexpr std::uint32_t kDoorVersion = 1;
constexpr std::size_t kKnockBytes = 20;
constexpr std::size_t kNoteBytes = 8;
constexpr std::uint32_t kMostBytesOfNote = 1 << 26;  // cards of a hundred thousand ranks
constexpr std::size_t kMostWaiting = 4096;           // more are hung up on: somebody is out of its mind

}  // namespace

std::string knock() {
  std::string text(kMagic);
  append_u32(text, kDoorVersion);
  append_u32(text, kTcpVersion);
  append_u32(text, start_of_messages());
  return text;
}

bool send_note(int fd, NoteKind kind, const std::string& content, const Deadline& deadline) {
  std::string text;
  append_u32(text, static_cast<std::uint32_t>(kind));
  append_u32(text, static_cast<std::uint32_t>(content.size()));
  return send_whole(fd, text + content, deadline);
}

std::optional<Note> receive_note(int fd, const Deadline& deadline) {
  const auto prefix = receive_whole(fd, kNoteBytes, deadline);
  if (!prefix) return std::nullopt;
  const std::uint32_t length = u32_at(*prefix, 4);
  if (length > kMostBytesOfNote) return std::nullopt;
  std::optional<std::string> content = receive_whole(fd, length, deadline);
  if (!content) return std::nullopt;
  return Note{static_cast<NoteKind>(u32_at(*prefix, 0)), std::move(*content)};
}

std::optional<std::string> receive_note(int fd, NoteKind kind, const Deadline& deadline) {
  std::optional<Note> note = receive_note(fd, deadline);
  if (!note || note->kind != kind) return std::nullopt;
  return std::move(note->content);
}

// ---------------------------------------------------------------- who waits

Door::Guests::Guests(const DoorOptions& options)
    : listener_(listen_at(options.host.empty() ? SocketAddress::any() : SocketAddress::resolve(options.host, 0).front(),
                          {options.port, options.port})),
      answer_seconds_(options.answer_seconds) {}

std::uint16_t Door::Guests::port() const { return address_of_this_end(listener_.get()).port(); }

int Door::Guests::waiting() const {
  return static_cast<int>(std::ranges::count_if(waiting_, [](const Guest& guest) { return guest.has_knocked; }));
}

void Door::Guests::look() {
  let_in();
  for (Guest& guest : waiting_) listen_to(guest);
  std::erase_if(waiting_, [](const Guest& guest) { return !guest.fd; });
}

void Door::Guests::let_in() {
  while (Fd fd = accept_from(listener_.get())) {
    if (waiting_.size() < kMostWaiting) waiting_.push_back({std::move(fd)});
  }
}

// Who has knocked has nothing more to say: what can still be read is the end of the connection.
void Door::Guests::listen_to(Guest& guest) {
  char chunk[64];
  for (;;) {
    const ssize_t got = ::recv(guest.fd.get(), chunk, sizeof chunk, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return;
    if (got <= 0 || guest.has_knocked) return guest.fd.close();
    guest.said.append(chunk, static_cast<std::size_t>(got));
    judge_knock(guest);
    if (!guest.fd) return;
  }
}

void Door::Guests::judge_knock(Guest& guest) {
  const std::string& said = guest.said;
  const std::size_t known = std::min(said.size(), kMagic.size());
  if (said.size() > kKnockBytes || said.compare(0, known, kMagic, 0, known) != 0) return guest.fd.close();
  if (said.size() < kKnockBytes) return;
  guest.has_knocked = said == knock();
  if (guest.has_knocked) return;
  const std::string text = fmt::format(
      "the newcomer speaks versions {}, {} of the door and of TCP, the job {}, {}, or other messages: all ranks need "
      "the same Tulle",
      u32_at(said, 8), u32_at(said, 12), kDoorVersion, kTcpVersion);
  send_note(guest.fd.get(), NoteKind::refused, text, Deadline(1));
  guest.fd.close();
}

// ---------------------------------------------------------------- admission

int Door::Guests::call_in() {
  look();
  const Deadline deadline(answer_seconds_);
  std::vector<Guest> strangers;
  for (Guest& guest : waiting_) {
    if (!guest.has_knocked) {
      strangers.push_back(std::move(guest));
    } else if (send_note(guest.fd.get(), NoteKind::call, "", deadline)) {
      called_in_.push_back(std::move(guest.fd));
    }
  }
  waiting_ = std::move(strangers);
  std::erase_if(called_in_, [&](const Fd& fd) { return !receive_note(fd.get(), NoteKind::here, deadline); });
  return static_cast<int>(called_in_.size());
}

std::vector<std::string> Door::Guests::take_cards(int members, const Deadline& deadline) {
  const auto size = static_cast<std::uint32_t>(members) + static_cast<std::uint32_t>(called_in_.size());
  const auto fail = [](std::uint32_t rank) {
    throw Error(ErrorKind::peer_failed, fmt::format("the newcomer that would be rank {} left on its way in", rank))
        .with_peer(static_cast<int>(rank));
  };
  auto rank = static_cast<std::uint32_t>(members);
  for (const Fd& fd : called_in_) {
    std::string place;
    append_u32(place, rank);
    append_u32(place, size);
    if (!send_note(fd.get(), NoteKind::place, place, deadline)) fail(rank);
    rank += 1;
  }
  std::vector<std::string> cards;
  for (const Fd& fd : called_in_) {
    std::optional<std::string> card = receive_note(fd.get(), NoteKind::card, deadline);
    if (!card) fail(static_cast<std::uint32_t>(members) + static_cast<std::uint32_t>(cards.size()));
    cards.push_back(std::move(*card));
  }
  return cards;
}

void Door::Guests::hand_out(const std::vector<std::string>& cards, const Deadline& deadline) {
  const std::string packed = pack_strings(cards);
  // One that is gone is missed by whoever connects with it.
  for (const Fd& fd : called_in_) send_note(fd.get(), NoteKind::cards, packed, deadline);
  called_in_.clear();
}

void Door::Guests::send_away() { called_in_.clear(); }

// ---------------------------------------------------------------- Door

Door::Door(const DoorOptions& options) : guests_(std::make_unique<Guests>(options)) {}
Door::Door(Door&&) noexcept = default;
Door& Door::operator=(Door&&) noexcept = default;
Door::~Door() = default;

std::uint16_t Door::port() const { return guests_->port(); }

int Door::waiting() {
  guests_->look();
  return guests_->waiting();
}

}  // namespace tulle
