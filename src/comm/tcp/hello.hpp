// What two ranks say to each other before anything else: who they are, to whom they speak, and the other's token.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>

#include "comm/tcp/token.hpp"

namespace tulle {

inline constexpr std::size_t kHelloBytes = 64;

struct Hello {
  enum class Kind : std::uint8_t {
    call = 1,     ///< of the one that connects
    welcome = 2,  ///< the answer: messages may follow, both ways
    later = 3,    ///< the answer where both connect at once and the other connection is kept
  };
  Kind kind = Kind::call;
  bool can_pull = false;  ///< the speaker can read the listener's memory
  int from = 0, to = 0;
  Token token = {};  ///< the listener's
};

std::array<std::byte, kHelloBytes> encode_hello(const Hello& hello);
/// False where no hello begins with `said`, which may be a part of one.
bool may_begin_hello(std::string_view said);
/// The hello, or why the bytes are none.
std::variant<Hello, std::string> decode_hello(std::span<const std::byte, kHelloBytes> bytes);

}  // namespace tulle
