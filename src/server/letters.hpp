// What servers and workers write to each other: a head of 48 bytes, the pushes that a step accepted, and a body.
//
//   0   1  format, 2
//   1   1  kind
//   2   2  life of the worker that sends or receives it: a worker that is restarted has another one
//   4   4  parameter
//   8   8  sequence: counts the letters of this sender to this receiver, from 0
//   16  8  version: push: of the model that it was computed on; model, update: that it leads to
//   24  8  push: number of the worker's push for this parameter
//   32  4  accepted: how many pushes follow the head
//   36  4  CRC-32C of the body and of all other bytes of the head
//   40  8  weight of a push, f64; else 0
//   48     for each accepted push the worker's rank and the push's number, 8 bytes each
//
// The body is the other segments of the datagram: a frame, an array of f32, or a text.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tulle/base/buffer.hpp"
#include "tulle/base/error.hpp"

namespace tulle::server {

inline constexpr std::size_t kLetterHeadBytes = 48, kAcceptedBytes = 16;

/// Numbers are part of the format: never renumber.
enum class LetterKind : std::uint8_t {
  join = 1,     ///< worker: here I am, with these parameters and options (text)
  model = 2,    ///< server: a parameter, whole (f32)
  push = 3,     ///< worker: a change of a parameter (frame)
  update = 4,   ///< server: what a step changed (frame)
  leave = 5,    ///< worker: I am done; or why I end early (text)
  goodbye = 6,  ///< server: you have left
  refusal = 7,  ///< server: why it does not serve you any more (text)
};

struct AcceptedPush {
  std::uint64_t worker = 0;
  std::uint64_t push = 0;
  friend bool operator==(const AcceptedPush&, const AcceptedPush&) = default;
};

struct LetterHead {
  LetterKind kind = LetterKind::join;
  std::uint32_t parameter = 0;
  std::uint64_t sequence = 0;
  std::uint64_t version = 0;
  std::uint64_t push = 0;
  std::vector<AcceptedPush> accepted = {};
  std::uint16_t life = 0;
  double weight = 0;
};

/// Segments that may go to many receivers, with their checksum, which is made once.
struct Body {
  Segments segments;
  std::uint32_t checksum = 0;

  std::uint64_t bytes() const;
};
Body body_of(Segments segments);
Body body_of(std::string_view text);
std::string text_of(const Segments& body);

/// What arrived, or news that a peer is gone or sends what is no letter.
struct Letter {
  int from = 0;
  LetterHead head;
  Segments body;
  std::optional<Error> failure = {};
  bool is_gone = false;  ///< of a failure: the peer cannot be reached any more
};

/// The segments of a datagram.
Segments encode_letter(const LetterHead& head, const Body& body);
/// Trusts nothing. Throws bad_message naming the field.
Letter decode_letter(int from, Segments segments);

}  // namespace tulle::server
