// A message under way in a simulation, in little memory.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <variant>

#include "tulle/comm/message.hpp"

namespace tulle {

/// Four thousand ranks that split vectors have 16 million messages under way, and a message with its buffers takes 700
/// bytes of the pool. One of phantoms holds little more than two heads, which are kept in place.
class SimParcel {
 public:
  SimParcel() = default;
  explicit SimParcel(Message message);

  Message open() &&;

 private:
  static constexpr std::size_t kRoom = 152;  // heads of a message and of a frame, two phantoms, and their lengths
  struct Packed {
    std::uint32_t depth = 0;
    std::uint8_t segments = 0;
    std::array<std::byte, kRoom> bytes;
  };
  static bool fits(const Message& message);
  static Packed pack(const Message& message);
  static Message unpack(const Packed& packed);

  std::variant<Message, Packed> content_;
};

}  // namespace tulle
