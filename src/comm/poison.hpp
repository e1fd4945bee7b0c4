// What a rank that failed tells the others.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>

#include "tulle/base/buffer.hpp"

namespace tulle {

struct Poison {
  std::string reason;
  std::map<std::uint32_t, std::uint64_t> first_sequences;  ///< of each channel: the first operation that is concerned

  /// Of a channel that the sender does not know, everything is.
  std::uint64_t first_of(std::uint32_t channel) const {
    const auto found = first_sequences.find(channel);
    return found == first_sequences.end() ? 0 : found->second;
  }
};

Segments encode_poison(const Poison& poison);
/// Throws bad_message where the segments are not those of a poison.
Poison decode_poison(std::span<const Buffer> segments);

}  // namespace tulle
