// What ranks say to each other in an agreement. docs/wire_format.md gives it byte by byte.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "tulle/base/buffer.hpp"

namespace tulle {

/// Which proposal is the later one: a round, then the proposer's rank. 0: none.
using Ballot = std::uint64_t;

struct Survivor {
  std::uint32_t rank = 0;
  std::uint64_t value = 0;
  friend bool operator==(const Survivor&, const Survivor&) = default;
};

/// Who survives, with what each of them gave, by rank.
struct Proposal {
  std::uint8_t call = 0;  ///< which function the survivors called, and how
  std::vector<Survivor> survivors;

  bool has(int rank) const;
  friend bool operator==(const Proposal&, const Proposal&) = default;
};

struct AgreementMessage {
  /// Numbers are part of the wire format: never renumber.
  enum class Kind : std::uint8_t {
    join = 1,       ///< the sender has called, and gives its value
    prepare = 2,    ///< asks for a promise to take part in no earlier ballot
    promise = 3,    ///< gives it, with what the sender has accepted
    reject = 4,     ///< the sender has promised a later ballot
    accept = 5,     ///< asks to accept a proposal
    accepted = 6,   ///< the sender has
    decide = 7,     ///< a quorum has
    forgotten = 8,  ///< the agreement is so old that the sender no longer knows
  };
  Kind kind = Kind::join;
  std::uint32_t number = 0;  ///< of the agreement on this communicator, from 1
  Ballot ballot = 0;
  Ballot other_ballot = 0;  ///< in which the proposal was accepted, or that the sender has promised
  /// What the sender gives; unset where it has not called.
  std::uint8_t call = 0;
  std::optional<std::uint64_t> value;
  std::vector<std::uint32_t> gone;  ///< whom the sender cannot reach, increasing
  std::optional<Proposal> proposal;

  friend bool operator==(const AgreementMessage&, const AgreementMessage&) = default;
};

Segments encode_agreement_message(const AgreementMessage& message);
/// Throws bad_message where the segments are none. REQUIRES: `size` is that of the communicator.
AgreementMessage decode_agreement_message(std::span<const Buffer> segments, int size);

}  // namespace tulle
