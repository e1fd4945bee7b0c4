// What a rank tells the others in the rendezvous: how to reach it, how to prove membership, what it speaks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "comm/tcp/host_memory.hpp"
#include "comm/tcp/socket.hpp"
#include "comm/tcp/token.hpp"
#include "tulle/comm/tcp.hpp"

namespace tulle {

/// Of handshakes and frames; messages inside of frames have a version of their own.
inline constexpr std::uint32_t kTcpVersion = 2;
/// The beginning of a message's head, its magic and its version: ranks that differ there do not understand each other.
std::uint16_t start_of_messages();

struct Card {
  std::uint64_t detach_bytes = 0, pull_bytes = 0;
  std::uint32_t cores = 1;
  bool has_profile = false;  ///< TULLE_PROFILE is set
  std::string host;          ///< host_identity()
  Token token = {};          ///< whoever connects to this rank shows it
  RemoteMemory probe = {};   ///< where this process keeps `token`, for a test read
  std::vector<SocketAddress> addresses = {};
};

std::string encode_card(const Card& card);
/// Throws mismatch naming the rank where it speaks another version, bad_message where the bytes are no card.
Card decode_card(const std::string& bytes, int rank);

/// The cards of all ranks. Throws mismatch where one differs from this rank's in what must be equal.
std::vector<Card> decode_cards(const std::vector<std::string>& all, int rank);

}  // namespace tulle
