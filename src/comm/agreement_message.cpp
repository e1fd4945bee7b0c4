#include "comm/agreement_message.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/little_endian.hpp"
#include "tulle/base/error.hpp"

namespace tulle {
namespace {

constexpr std::size_t kKindAt = 0, kFlagsAt = 1, kCallAt = 2, kProposalCallAt = 3, kNumberAt = 4, kBallotAt = 8,
                      kOtherBallotAt = 16, kValueAt = 24, kGoneAt = 32, kHeadBytes = 36;
constexpr std::size_t kGoneBytes = 4;
constexpr std::size_t kSurvivorValueAt = 4, kSurvivorBytes = 12;
constexpr std::uint8_t kHasValue = 1, kHasProposal = 2;

[[noreturn]] void reject(std::string_view field, std::string_view why) {
  throw Error(ErrorKind::bad_message, fmt::format("agreement field '{}': {}", field, why));
}

bool needs_proposal(AgreementMessage::Kind kind) {
  return kind == AgreementMessage::Kind::accept || kind == AgreementMessage::Kind::decide;
}

// `records` of `bytes` each, which begin with a rank.
void require_ranks(std::span<const std::byte> records, std::size_t bytes, int size, std::string_view field) {
  std::int64_t last = -1;
  for (; !records.empty(); records = records.subspan(bytes)) {
    const auto rank = std::int64_t{load_at<std::uint32_t>(records, 0)};
    if (rank >= size) reject(field, "a rank is none of the communicator's");
    if (rank <= last) reject(field, "are not in the order of ranks");
    last = rank;
  }
}

std::vector<std::uint32_t> decode_gone(std::span<const std::byte> records, int size) {
  require_ranks(records, kGoneBytes, size, "gone");
  std::vector<std::uint32_t> gone;
  for (; !records.empty(); records = records.subspan(kGoneBytes)) gone.push_back(load_at<std::uint32_t>(records, 0));
  return gone;
}

std::vector<Survivor> decode_survivors(std::span<const std::byte> records, int size) {
  if (records.empty()) reject("survivors", "there are none");
  require_ranks(records, kSurvivorBytes, size, "survivors");
  std::vector<Survivor> survivors;
  for (; !records.empty(); records = records.subspan(kSurvivorBytes)) {
    survivors.push_back({load_at<std::uint32_t>(records, 0), load_at<std::uint64_t>(records, kSurvivorValueAt)});
  }
  return survivors;
}

}  // namespace

bool Proposal::has(int rank) const {
  return std::ranges::find(survivors, static_cast<std::uint32_t>(rank), &Survivor::rank) != survivors.end();
}

Segments encode_agreement_message(const AgreementMessage& message) {
  const std::size_t survivors = message.proposal ? message.proposal->survivors.size() : 0;
  const std::size_t survivors_at = kHeadBytes + kGoneBytes * message.gone.size();
  Buffer buffer = Buffer::allocate(survivors_at + kSurvivorBytes * survivors);
  const auto bytes = buffer.as_mutable<std::byte>();
  store_at(bytes, kKindAt, message.kind);
  store_at(bytes, kFlagsAt,
           static_cast<std::uint8_t>((message.value ? kHasValue : 0) | (message.proposal ? kHasProposal : 0)));
  store_at(bytes, kCallAt, message.call);
  store_at(bytes, kProposalCallAt, message.proposal ? message.proposal->call : std::uint8_t{0});
  store_at(bytes, kNumberAt, message.number);
  store_at(bytes, kBallotAt, message.ballot);
  store_at(bytes, kOtherBallotAt, message.other_ballot);
  store_at(bytes, kValueAt, message.value.value_or(0));
  store_at(bytes, kGoneAt, static_cast<std::uint32_t>(message.gone.size()));
  for (std::size_t i = 0; i < message.gone.size(); ++i) store_at(bytes, kHeadBytes + kGoneBytes * i, message.gone[i]);
  for (std::size_t i = 0; i < survivors; ++i) {
    const auto record = bytes.subspan(survivors_at + kSurvivorBytes * i);
    store_at(record, 0, message.proposal->survivors[i].rank);
    store_at(record, kSurvivorValueAt, message.proposal->survivors[i].value);
  }
  Segments segments;
  segments.push_back(std::move(buffer));
  return segments;
}

AgreementMessage decode_agreement_message(std::span<const Buffer> segments, int size) {
  using Kind = AgreementMessage::Kind;
  if (segments.size() != 1) reject("segments", fmt::format("there are {} and not 1", segments.size()));
  const std::span<const std::byte> bytes = segments[0].bytes();
  const std::uint64_t gone_bytes =
      bytes.size() < kHeadBytes ? 0 : kGoneBytes * std::uint64_t{load_at<std::uint32_t>(bytes, kGoneAt)};
  if (bytes.size() < kHeadBytes + gone_bytes || (bytes.size() - kHeadBytes - gone_bytes) % kSurvivorBytes != 0) {
    reject("segments", fmt::format("{} bytes are no agreement's", bytes.size()));
  }
  AgreementMessage message;
  message.kind = load_at<Kind>(bytes, kKindAt);
  if (message.kind < Kind::join || message.kind > Kind::forgotten) reject("kind", "is unknown");
  const auto flags = load_at<std::uint8_t>(bytes, kFlagsAt);
  if (flags > (kHasValue | kHasProposal)) reject("flags", "has bits that are not defined");
  message.call = load_at<std::uint8_t>(bytes, kCallAt);
  message.number = load_at<std::uint32_t>(bytes, kNumberAt);
  message.ballot = load_at<Ballot>(bytes, kBallotAt);
  message.other_ballot = load_at<Ballot>(bytes, kOtherBallotAt);
  if ((flags & kHasValue) != 0) message.value = load_at<std::uint64_t>(bytes, kValueAt);
  message.gone = decode_gone(bytes.subspan(kHeadBytes, gone_bytes), size);
  const std::span<const std::byte> records = bytes.subspan(kHeadBytes + gone_bytes);
  if ((flags & kHasProposal) != 0) {
    message.proposal = Proposal{load_at<std::uint8_t>(bytes, kProposalCallAt), decode_survivors(records, size)};
  } else if (needs_proposal(message.kind) || !records.empty()) {
    reject("flags", "do not say whether there is a proposal");
  }
  if (message.kind == Kind::join && !message.value) reject("flags", "a rank joins without a value");
  return message;
}

}  // namespace tulle
