#include "comm/tcp/door.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "comm/tcp/job_identity.hpp"
#include "comm/tcp/packed_strings.hpp"
#include "comm/tcp/socket.hpp"
#include "comm/tcp/timed_io.hpp"
#include "tulle/base/error.hpp"

namespace tulle {
namespace {

constexpr std::string_view kMagic = "TULLEDOR";
constexpr std::uint32_t kDoorVersion = 2;
constexpr std::size_t kVersionAt = 8, kTcpVersionAt = 12, kMessagesAt = 16, kJobLengthAt = 20, kCardLengthAt = 24,
                      kKnockBytes = 28;
constexpr std::size_t kNoteBytes = 8, kPlaceBytes = 8;
constexpr std::uint32_t kMostBytesOfNote = 1 << 26;  // cards of a hundred thousand ranks
constexpr std::uint32_t kMostBytesOfCard = 1 << 12;
constexpr double kSecondsBetweenCalls = 1;

// Of a stranger's words. One that speaks another version is told so.
Entrance::Verdict judge_knock(std::string_view said) {
  using Kind = Entrance::Verdict::Kind;
  if (said.substr(0, kMagic.size()) != kMagic.substr(0, said.size())) return {Kind::wrong, "it does not knock"};
  if (said.size() < kMessagesAt + 4) return {};
  if (u32_at(said, kVersionAt) != kDoorVersion) return {Kind::whole};
  if (said.size() < kKnockBytes) return {};
  const std::size_t job = u32_at(said, kJobLengthAt), card = u32_at(said, kCardLengthAt);
  if (job > kMostBytesOfJob || card > kMostBytesOfCard) return {Kind::wrong, "it announces too many bytes"};
  if (said.size() > kKnockBytes + job + card) return {Kind::wrong, "it says more than it announced"};
  return {said.size() == kKnockBytes + job + card ? Kind::whole : Kind::part};
}

std::string card_in(const std::string& knock) { return knock.substr(kKnockBytes + u32_at(knock, kJobLengthAt)); }

std::string note_of(NoteKind kind, const std::string& content) {
  std::string text;
  append_u32(text, static_cast<std::uint32_t>(kind));
  append_u32(text, static_cast<std::uint32_t>(content.size()));
  return text + content;
}

[[noreturn]] void throw_left(int rank) {
  throw Error(ErrorKind::peer_failed, fmt::format("the newcomer that would be rank {} left on its way in", rank))
      .with_peer(rank);
}

std::vector<Fd> listen_where(const DoorOptions& options) {
  std::vector<Fd> listeners;
  const SocketAddress address =
      options.host.empty() ? SocketAddress::any() : SocketAddress::resolve(options.host, 0).front();
  listeners.push_back(listen_at(address, {options.port, options.port}));
  return listeners;
}

}  // namespace

std::string knock(const std::string& job, const std::string& card) {
  std::string text(kMagic);
  append_u32(text, kDoorVersion);
  append_u32(text, kTcpVersion);
  append_u32(text, start_of_messages());
  append_u32(text, static_cast<std::uint32_t>(job.size()));
  append_u32(text, static_cast<std::uint32_t>(card.size()));
  return text + job + card;
}

bool send_note(int fd, NoteKind kind, const std::string& content, const Deadline& deadline) {
  return send_whole(fd, note_of(kind, content), deadline);
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

std::string to_text(const Place& place) {
  std::string text;
  append_u32(text, static_cast<std::uint32_t>(place.rank));
  append_u32(text, static_cast<std::uint32_t>(place.cards.size()));
  return text + pack_strings(place.cards);
}

Place place_from(const std::string& text) {
  const std::uint32_t rank = text.size() < kPlaceBytes ? 0 : u32_at(text, 0);
  const std::uint32_t size = text.size() < kPlaceBytes ? 0 : u32_at(text, 4);
  if (rank >= size) throw Error(ErrorKind::bad_message, "join: what the door sent is no place");
  return {static_cast<int>(rank),
          unpack_strings(std::string_view(text).substr(kPlaceBytes), size, "join: what the door sent")};
}

// ---------------------------------------------------------------- the door's thread

Door::Guests::Guests(const DoorOptions& options)
    : options_(options),
      entrance_(listen_where(options), judge_knock),
      end_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)),
      fork_watch_(*this) {
  if (!end_) throw_errno("eventfd");
  thread_ = std::thread([this] { work(); });
}

Door::Guests::~Guests() {
  if (is_in_child_) {
    thread_.detach();  // it is the parent's
    return;
  }
  eventfd_write(end_.get(), 1);
  thread_.join();
}

void Door::Guests::forget_in_child() noexcept {
  is_in_child_ = true;
  entrance_.forget();
  for (Guest& guest : waiting_) guest.fd.close();
  for (Guest& guest : called_in_) guest.fd.close();
  end_.close();
}

void Door::Guests::work() {
  constexpr int kBusyMilliseconds = 100, kIdleMilliseconds = 1000;
  for (;;) {
    std::vector<pollfd> entries = {{end_.get(), POLLIN, 0}, {entrance_.fd(), POLLIN, 0}};
    bool is_busy = false;
    {
      const std::lock_guard lock(mutex_);
      for (const Guest& guest : waiting_) entries.push_back({guest.fd.get(), POLLIN, 0});
      is_busy = !waiting_.empty() || entrance_.is_busy();
    }
    ::poll(entries.data(), entries.size(), is_busy ? kBusyMilliseconds : kIdleMilliseconds);
    if (entries[0].revents != 0) return;
    const std::lock_guard lock(mutex_);
    look();
  }
}

void Door::Guests::look() {
  for (Entrance::Arrival& arrival : entrance_.look()) take(std::move(arrival));
  for (Guest& guest : waiting_) attend(guest);
  std::erase_if(waiting_, [](const Guest& guest) { return !guest.fd; });
}

// The oldest goes where too many wait, as at every entrance: a newcomer knocks again.
void Door::Guests::take(Entrance::Arrival arrival) {
  const std::string wrong = why_not(arrival.said);
  if (!wrong.empty()) {
    send_note(arrival.fd.get(), NoteKind::refused, wrong, Deadline(0.1));
    return entrance_.count_refusal(arrival.address, wrong);
  }
  if (waiting_.size() >= most_strangers()) waiting_.erase(waiting_.begin());
  Guest guest{std::move(arrival.fd), card_in(arrival.said)};
  call(guest);
  if (guest.fd) waiting_.push_back(std::move(guest));
}

// Empty where the knock is a newcomer's.
std::string Door::Guests::why_not(const std::string& said) const {
  const auto number = [&](std::size_t at) { return u32_at(said, at); };
  if (number(kVersionAt) != kDoorVersion || number(kTcpVersionAt) != kTcpVersion ||
      number(kMessagesAt) != start_of_messages()) {
    return fmt::format(
        "the newcomer speaks versions {}, {} of the door and of TCP, the job {}, {}, or other messages: all ranks need "
        "the same Tulle",
        number(kVersionAt), number(kTcpVersionAt), kDoorVersion, kTcpVersion);
  }
  const std::string job = said.substr(kKnockBytes, number(kJobLengthAt));
  if (!options_.job.empty() && job != options_.job) {
    return fmt::format("the newcomer wants to join {}, this is {}", describe_job(job), describe_job(options_.job));
  }
  try {
    decode_card(card_in(said), 0);
  } catch (const Error&) {
    return "the newcomer's card is none";
  }
  return {};
}

bool Door::Guests::Guest::is_ready(double now) const {
  const bool answers_late = called_seconds != 0 && now - called_seconds > kSecondsBetweenCalls;
  return answered_seconds != 0 && !answers_late && now - answered_seconds < 3 * kSecondsBetweenCalls;
}

void Door::Guests::attend(Guest& guest) const {
  hear(guest);
  const double now = steady_seconds();
  if (guest.called_seconds != 0 && now - guest.called_seconds > options_.answer_seconds) guest.fd.close();
  if (guest.called_seconds == 0 && now - guest.answered_seconds > kSecondsBetweenCalls) call(guest);
}

// Nothing but that it is here, and not without being asked.
void Door::Guests::hear(Guest& guest) {
  char chunk[64];
  while (guest.fd) {
    const ssize_t got = ::recv(guest.fd.get(), chunk, sizeof chunk, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return;
    if (got <= 0) return guest.fd.close();
    guest.said.append(chunk, static_cast<std::size_t>(got));
    if (guest.said.size() < kNoteBytes) continue;
    if (guest.called_seconds == 0 || guest.said != note_of(NoteKind::here, "")) return guest.fd.close();
    guest.said.clear();
    guest.called_seconds = 0;
    guest.answered_seconds = steady_seconds();
  }
}

void Door::Guests::call(Guest& guest) {
  const std::string text = note_of(NoteKind::call, "");
  const ssize_t sent = guest.fd ? ::send(guest.fd.get(), text.data(), text.size(), MSG_NOSIGNAL) : 0;
  guest.called_seconds = steady_seconds();
  if (sent != static_cast<ssize_t>(text.size())) guest.fd.close();
}

// ---------------------------------------------------------------- admission

int Door::Guests::waiting() {
  const std::lock_guard lock(mutex_);
  const double now = steady_seconds();
  return static_cast<int>(std::ranges::count_if(waiting_, [=](const Guest& guest) { return guest.is_ready(now); }));
}

int Door::Guests::call_in(const TcpOptions& options) {
  const std::lock_guard lock(mutex_);
  look();
  const double now = steady_seconds();
  for (Guest& guest : waiting_) {
    if (!guest.is_ready(now)) continue;
    const Card card = decode_card(guest.card, 0);
    if (card.detach_bytes == options.detach_bytes && card.pull_bytes == options.pull_bytes) {
      called_in_.push_back(std::move(guest));
      continue;
    }
    send_note(guest.fd.get(), NoteKind::refused,
              "the newcomer's TcpOptions (detach_bytes, pull_bytes) are not the job's", Deadline(0.1));
    guest.fd.close();
  }
  std::erase_if(waiting_, [](const Guest& guest) { return !guest.fd; });
  return static_cast<int>(called_in_.size());
}

std::vector<std::string> Door::Guests::cards() const {
  std::vector<std::string> cards;
  for (const Guest& guest : called_in_) cards.push_back(guest.card);
  return cards;
}

void Door::Guests::hand_out(const std::vector<std::string>& all, int members, const Deadline& deadline) {
  std::vector<std::string> notes;
  for (std::size_t i = 0; i < called_in_.size(); ++i) {
    notes.push_back(note_of(NoteKind::place, to_text({members + static_cast<int>(i), all})));
  }
  std::vector<Parcel> parcels;
  for (std::size_t i = 0; i < called_in_.size(); ++i) parcels.push_back({called_in_[i].fd.get(), notes[i]});
  const std::vector<std::size_t> lost = send_all(std::move(parcels), deadline);
  if (!lost.empty()) throw_left(members + static_cast<int>(lost.front()));
  require_all_there(members);
}

void Door::Guests::require_all_there(int members) const {
  for (std::size_t i = 0; i < called_in_.size(); ++i) {
    if (has_hung_up(called_in_[i].fd.get())) throw_left(members + static_cast<int>(i));
  }
}

// ---------------------------------------------------------------- Door

Door::Door(const DoorOptions& options) : guests_(std::make_unique<Guests>(options)) {}
Door::Door(Door&&) noexcept = default;
Door& Door::operator=(Door&&) noexcept = default;
Door::~Door() = default;

std::uint16_t Door::port() const { return guests_->port(); }

int Door::waiting() { return guests_->waiting(); }

}  // namespace tulle
