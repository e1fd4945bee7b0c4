#include "comm/tcp/card.hpp"

#include <fmt/format.h>

#include <cstring>

#include "tulle/base/crc32c.hpp"
#include "tulle/base/error.hpp"
#include "tulle/comm/message.hpp"

namespace tulle {
namespace {

constexpr std::string_view kMagic = "TULLE card ";
constexpr std::size_t kMostAddresses = 16;

class Writer {
 public:
  template <class T>
  void number(T value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void text(std::string_view text) {
    number(static_cast<std::uint32_t>(text.size()));
    bytes_ += text;
  }
  void token(const Token& token) { bytes_.append(reinterpret_cast<const char*>(token.data()), token.size()); }
  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

class Reader {
 public:
  Reader(std::string_view bytes, int rank) : bytes_(bytes), rank_(rank) {}

  template <class T>
  T number() {
    T value;
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }
  std::string text() { return std::string(take(number<std::uint32_t>())); }
  Token token() {
    Token token;
    std::memcpy(token.data(), take(token.size()).data(), token.size());
    return token;
  }
  /// The last bytes of `all`, which is what this reader began with.
  void take_checksum(std::string_view all) {
    std::uint32_t checksum = 0;
    if (bytes_.size() < sizeof checksum) reject();
    const std::string_view covered = all.substr(0, all.size() - sizeof checksum);
    std::memcpy(&checksum, all.data() + covered.size(), sizeof checksum);
    bytes_.remove_suffix(sizeof checksum);
    if (crc32c(std::as_bytes(std::span(covered))) == checksum) return;
    throw Error(ErrorKind::bad_message,
                fmt::format("what rank {} said in the rendezvous was damaged on the way", rank_))
        .with_peer(rank_);
  }
  void end() const {
    if (!bytes_.empty()) reject();
  }
  [[noreturn]] void reject() const {
    throw Error(ErrorKind::bad_message, fmt::format("rank {} came to the rendezvous with something else", rank_))
        .with_peer(rank_);
  }
  std::string_view take(std::size_t count) {
    if (count > bytes_.size()) reject();
    const std::string_view taken = bytes_.substr(0, count);
    bytes_.remove_prefix(count);
    return taken;
  }

 private:
  std::string_view bytes_;
  int rank_;
};

[[noreturn]] void disagree(int rank, const std::string& how) {
  throw Error(ErrorKind::mismatch, fmt::format("rank {} {}", rank, how)).with_peer(rank);
}

void require_versions(Reader& reader, int rank) {
  if (reader.take(kMagic.size()) != kMagic) reader.reject();
  const auto version = reader.number<std::uint32_t>();
  if (version != kTcpVersion) {
    disagree(rank, fmt::format("speaks version {} on TCP, this rank speaks {}: all ranks need the same Tulle", version,
                               kTcpVersion));
  }
  if (reader.number<std::uint16_t>() != start_of_messages()) {
    disagree(rank, "speaks another version of messages than this rank: all ranks need the same Tulle");
  }
}

void require_equal(std::string_view option, std::uint64_t theirs, std::uint64_t mine, int rank) {
  if (theirs != mine) disagree(rank, fmt::format("has TcpOptions::{} = {}, this rank {}", option, theirs, mine));
}

}  // namespace

std::uint16_t start_of_messages() {
  std::uint16_t start = 0;
  const Buffer head = encode_message_head({}, {});
  std::memcpy(&start, head.data(), sizeof start);
  return start;
}

std::string encode_card(const Card& card) {
  Writer writer;
  std::string bytes(kMagic);
  writer.number(kTcpVersion);
  writer.number(start_of_messages());
  writer.number(card.detach_bytes);
  writer.number(card.pull_bytes);
  writer.number(card.cores);
  writer.number(static_cast<std::uint8_t>(card.has_profile));
  writer.text(card.host);
  writer.token(card.token);
  writer.number(static_cast<std::int64_t>(card.probe.process));
  writer.number(card.probe.address);
  writer.number(static_cast<std::uint8_t>(std::min(card.addresses.size(), kMostAddresses)));
  for (std::size_t i = 0; i < std::min(card.addresses.size(), kMostAddresses); ++i) {
    writer.text(card.addresses[i].host());
    writer.number(card.addresses[i].port());
  }
  bytes += writer.take();
  const std::uint32_t checksum = crc32c(std::as_bytes(std::span(bytes)));
  return bytes.append(reinterpret_cast<const char*>(&checksum), sizeof checksum);
}

Card decode_card(const std::string& bytes, int rank) {
  Reader reader(bytes, rank);
  require_versions(reader, rank);
  reader.take_checksum(bytes);
  Card card;
  card.detach_bytes = reader.number<std::uint64_t>();
  card.pull_bytes = reader.number<std::uint64_t>();
  card.cores = reader.number<std::uint32_t>();
  card.has_profile = reader.number<std::uint8_t>() != 0;
  card.host = reader.text();
  card.token = reader.token();
  card.probe.process = static_cast<pid_t>(reader.number<std::int64_t>());
  card.probe.address = reader.number<std::uint64_t>();
  const auto addresses = reader.number<std::uint8_t>();
  for (int i = 0; i < addresses; ++i) {
    const std::string host = reader.text();
    const auto address = SocketAddress::from_numbers(host, reader.number<std::uint16_t>());
    if (!address) reader.reject();
    card.addresses.push_back(*address);
  }
  reader.end();
  return card;
}

std::vector<Card> decode_cards(const std::vector<std::string>& all, int rank) {
  std::vector<Card> cards;
  for (std::size_t peer = 0; peer < all.size(); ++peer) cards.push_back(decode_card(all[peer], static_cast<int>(peer)));
  const Card& mine = cards[static_cast<std::size_t>(rank)];
  for (std::size_t peer = 0; peer < cards.size(); ++peer) {
    require_equal("detach_bytes", cards[peer].detach_bytes, mine.detach_bytes, static_cast<int>(peer));
    require_equal("pull_bytes", cards[peer].pull_bytes, mine.pull_bytes, static_cast<int>(peer));
  }
  return cards;
}

}  // namespace tulle
