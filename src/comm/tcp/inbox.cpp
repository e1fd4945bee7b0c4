#include "comm/tcp/inbox.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/little_endian.hpp"
#include "tulle/base/crc32c.hpp"
#include "tulle/base/error.hpp"

namespace tulle {
namespace {

constexpr std::size_t kMostPlaces = 63;  // in one read, beside the scratch area

// Values of any type may be read where they lie.
std::size_t aligned(std::size_t offset) { return (offset + 7) / 8 * 8; }

}  // namespace

Inbox::Inbox(int source, const Settings& settings) : source_(source), settings_(&settings) { aim(Stage::prefix); }

// ---------------------------------------------------------------- bytes

Inbox::State Inbox::read_from(int fd, std::span<std::byte> scratch, InboxOwner& owner) {
  iovec pieces[kMostPlaces + 1];
  const std::size_t places = std::min(places_.size() - next_place_, kMostPlaces);
  std::copy_n(places_.begin() + static_cast<std::ptrdiff_t>(next_place_), places, pieces);
  const bool reaches_end = next_place_ + places == places_.size();
  if (reaches_end) pieces[places] = {scratch.data(), scratch.size()};
  const std::size_t count = places + (reaches_end ? 1 : 0);
  std::size_t wanted = 0, in_place = 0;
  for (std::size_t i = 0; i < count; ++i) wanted += pieces[i].iov_len;
  in_place = wanted - (reaches_end ? scratch.size() : 0);

  const ssize_t got = ::readv(fd, pieces, static_cast<int>(count));
  if (got == 0) return State::closed;
  if (got < 0) return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR ? State::dry : State::failed;
  const auto bytes = static_cast<std::size_t>(got);
  bytes_read_ += bytes;
  advance(std::min(bytes, in_place));
  finish_stages(owner);
  auto rest = std::span<const std::byte>(scratch).first(bytes - std::min(bytes, in_place));
  while (!rest.empty()) {
    rest = rest.subspan(fill(rest));
    finish_stages(owner);
  }
  return bytes == wanted ? State::more : State::dry;
}

std::size_t Inbox::fill(std::span<const std::byte> bytes) {
  const iovec& place = places_[next_place_];
  const std::size_t taken = std::min(bytes.size(), place.iov_len);
  std::memcpy(place.iov_base, bytes.data(), taken);
  advance(taken);
  return taken;
}

void Inbox::advance(std::size_t bytes) {
  const bool is_summed = prefix_.has_trailer && stage_ >= Stage::addresses && stage_ <= Stage::large;
  while (bytes > 0) {
    iovec& place = places_[next_place_];
    const std::size_t taken = std::min(bytes, place.iov_len);
    if (is_summed) checksum_ = crc32c({static_cast<const std::byte*>(place.iov_base), taken}, checksum_);
    place = {static_cast<std::byte*>(place.iov_base) + taken, place.iov_len - taken};
    bytes -= taken;
    if (place.iov_len == 0) next_place_ += 1;
  }
}

void Inbox::add_place(std::byte* to, std::size_t bytes) {
  if (bytes > 0) places_.push_back({to, bytes});
}

// ---------------------------------------------------------------- stages

void Inbox::aim(Stage stage) {
  stage_ = stage;
  places_.clear();
  next_place_ = 0;
  if (stage == Stage::prefix) add_place(prefix_bytes_.data(), prefix_bytes_.size());
}

void Inbox::finish_stages(InboxOwner& owner) {
  while (next_place_ == places_.size()) {
    switch (stage_) {
      case Stage::prefix: open_prefix(owner); break;
      case Stage::head: open_head(); break;
      case Stage::addresses: open_addresses(); break;
      case Stage::small: place_large_segments(owner); break;
      case Stage::large: end_segments(owner); break;
      case Stage::trailer: finish_message(owner); break;
    }
  }
}

void Inbox::open_prefix(InboxOwner& owner) {
  prefix_ = decode_frame_prefix(prefix_bytes_);
  if (prefix_.kind == FrameKind::message) {
    message_ = {};
    message_.head = Buffer::allocate(prefix_.head_bytes);
    aim(Stage::head);
    add_place(message_.head.mutable_data(), message_.head.size());
    return;
  }
  aim(Stage::prefix);
  if (prefix_.kind == FrameKind::pulled) {
    owner.take_pulled(source_, prefix_.number);
  } else {
    owner.take_goodbye(source_);
  }
}

void Inbox::open_head() {
  require_checksum(crc32c(message_.head.bytes()), prefix_.head_checksum, "head");
  checksum_ = 0;
  const MessageHeader header = decode_message_header(message_.head.bytes());
  if (message_head_bytes(header) != message_.head.size()) {
    throw Error(ErrorKind::bad_message, fmt::format("frame field 'head_bytes': {} where the message says {}",
                                                    message_.head.size(), message_head_bytes(header)));
  }
  if (header.payload_bytes > settings_->most_message_bytes) {
    throw Error(ErrorKind::bad_message, fmt::format("a message of {} bytes is announced, this rank takes up to {}",
                                                    header.payload_bytes, settings_->most_message_bytes));
  }
  lengths_ = decode_segment_table(header, message_.head.bytes());
  const bool may_pull = prefix_.number != 0;
  const auto pulled = std::count_if(lengths_.begin(), lengths_.end(), [&](std::uint64_t bytes) {
    return settings_->limits.way_of(bytes, may_pull) == Way::pulled;
  });
  addresses_.resize(static_cast<std::size_t>(pulled));
  aim(Stage::addresses);
  add_place(reinterpret_cast<std::byte*>(addresses_.data()), 8 * addresses_.size());
}

// Memory for small segments, all in one piece. The kernel gives pages when bytes are written to them, so what a peer
// only announces takes no memory.
void Inbox::open_addresses() {
  const bool may_pull = prefix_.number != 0;
  const auto is_small = [&](std::uint64_t bytes) { return settings_->limits.way_of(bytes, may_pull) == Way::small; };
  std::size_t end = 0;
  for (const std::uint64_t bytes : lengths_) {
    if (is_small(bytes)) end = aligned(end) + bytes;
  }
  envelope_ = end > 0 ? Buffer::allocate(end) : Buffer();
  aim(Stage::small);
  std::size_t offset = 0;
  for (const std::uint64_t bytes : lengths_) {
    if (!is_small(bytes)) continue;
    offset = aligned(offset);
    add_place(envelope_.data_for_landing() + offset, bytes);
    offset += bytes;
  }
}

void Inbox::place_large_segments(InboxOwner& owner) {
  const bool may_pull = prefix_.number != 0;
  message_.segments.resize(lengths_.size());
  std::size_t offset = 0;
  for (std::size_t i = 0; i < lengths_.size(); ++i) {
    if (lengths_[i] == 0 || settings_->limits.way_of(lengths_[i], may_pull) != Way::small) continue;
    message_.segments[i] = envelope_.slice(aligned(offset), lengths_[i]);
    offset = aligned(offset) + lengths_[i];
  }
  envelope_ = {};
  aim(Stage::large);
  pulls_.clear();
  Segments landings(lengths_.size());  // kept apart: to the owner, segments that are still to come are empty
  for (std::size_t i = 0; i < lengths_.size(); ++i) {
    const Way way = settings_->limits.way_of(lengths_[i], may_pull);
    if (way == Way::small) continue;
    landings[i] = place_for(owner, i, lengths_[i]);
    std::byte* const memory = landings[i].data_for_landing();
    if (way == Way::large) {
      add_place(memory, lengths_[i]);
    } else {
      pulls_.push_back({memory, addresses_[pulls_.size()], lengths_[i]});
    }
  }
  for (std::size_t i = 0; i < lengths_.size(); ++i) {
    if (!landings[i].empty()) message_.segments[i] = std::move(landings[i]);
  }
}

Buffer Inbox::place_for(InboxOwner& owner, std::size_t segment, std::uint64_t bytes) const {
  Buffer landing = owner.landing_for(source_, message_.head.bytes(), message_.segments, segment, bytes);
  const bool fits = landing.size() == bytes && !landing.is_phantom();
  return fits ? landing : Buffer::allocate(bytes);
}

void Inbox::end_segments(InboxOwner& owner) {
  if (!prefix_.has_trailer) return finish_message(owner);
  aim(Stage::trailer);
  add_place(trailer_bytes_.data(), trailer_bytes_.size());
}

void Inbox::finish_message(InboxOwner& owner) {
  if (prefix_.has_trailer) {
    require_checksum(checksum_, load_at<std::uint32_t>(std::span<const std::byte>(trailer_bytes_), 0), "payload");
  }
  aim(Stage::prefix);
  Message message = std::exchange(message_, {});
  if (pulls_.empty()) {
    owner.take_message(source_, std::move(message));
  } else {
    owner.take_pull_order(source_, {std::move(message), prefix_.number, std::exchange(pulls_, {})});
  }
}

}  // namespace tulle
