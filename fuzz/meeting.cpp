// What ranks say before they know each other: cards, hellos, lists of cards, and the notes at a door.
#include <sys/socket.h>
#include <unistd.h>

#include "comm/tcp/card.hpp"
#include "comm/tcp/door.hpp"
#include "comm/tcp/hello.hpp"
#include "comm/tcp/packed_strings.hpp"
#include "fuzz/fuzz.hpp"

using namespace tulle;

namespace {

std::string text_of(const fuzz::Bytes& bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

// A card of another version is told by its own kind of error.
void read_card(const fuzz::Bytes& bytes) {
  try {
    std::string text = text_of(bytes);
    constexpr std::size_t kChecksumBytes = 4;  // the last
    const std::size_t covered = std::max(text.size(), kChecksumBytes) - kChecksumBytes;
    fuzz::mend_checksum(text, covered, 0, covered);
    const Card card = decode_card(text, 0);
    if (card.addresses.size() > 16) return;  // which no rank sends
    const std::string written = encode_card(card);
    fuzz::require(encode_card(decode_card(written, 0)) == written, "a card says the same when it is sent on");
  } catch (const Error& error) {
    fuzz::require(error.kind() == ErrorKind::bad_message || error.kind() == ErrorKind::mismatch, error.what());
  }
}

void read_hello(fuzz::Bytes bytes) {
  bytes.resize(kHelloBytes);
  constexpr std::size_t kChecksumAt = 24, kAfterChecksum = 28;
  const std::span<std::byte> all(bytes);
  store_at(all, kChecksumAt, crc32c(all.subspan(kAfterChecksum), crc32c(all.first(kChecksumAt))));
  const auto hello = decode_hello(std::span(bytes).first<kHelloBytes>());
  if (const auto* const understood = std::get_if<Hello>(&hello)) {
    const auto again = decode_hello(encode_hello(*understood));
    fuzz::require(std::holds_alternative<Hello>(again), "a hello is understood when it is said again");
  }
}

void read_strings(const fuzz::Bytes& bytes) {
  const std::string text = text_of(bytes);
  for (const std::size_t count : {0, 1, 3}) {
    fuzz::decode_hostile([&] {
      fuzz::require(pack_strings(unpack_strings(text, count, "fuzz")) == text, "strings are packed as they were");
    });
  }
}

void read_place(const fuzz::Bytes& bytes) {
  fuzz::decode_hostile([&] {
    const Place place = place_from(text_of(bytes));
    fuzz::require(place.rank < static_cast<int>(place.cards.size()), "a place is one of a job's");
    fuzz::require(to_text(place) == text_of(bytes), "a place is told as it was");
  });
}

// All that somebody says before it hangs up.
void read_notes(const fuzz::Bytes& bytes) {
  int ends[2];
  fuzz::require(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) == 0, "there are sockets");
  const bool is_sent = ::write(ends[0], bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size());
  ::close(ends[0]);
  const Deadline deadline(5);
  std::size_t heard = 0;
  while (const std::optional<Note> note = receive_note(ends[1], deadline)) heard += 8 + note->content.size();
  ::close(ends[1]);
  fuzz::require(is_sent && heard <= bytes.size(), "nothing is heard that was not said");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::Input input(data, size);
  const int choice = input.take<std::uint8_t>() % 5;
  const fuzz::Bytes bytes = input.rest();
  switch (choice) {
    case 0: read_card(bytes); break;
    case 1: read_hello(bytes); break;
    case 2: read_strings(bytes); break;
    case 3: read_notes(bytes); break;
    default: read_place(bytes);
  }
  return 0;
}
