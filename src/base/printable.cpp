#include "base/printable.hpp"

#include <algorithm>
#include <array>
#include <cstdint>

namespace tulle {
namespace {

// A character of UTF-8: how many bytes it takes, and its number. No bytes: these are not UTF-8.
struct Character {
  std::size_t bytes = 0;
  std::uint32_t code = 0;
};

// The shortest form alone is allowed, so that nothing hides in a longer one.
struct Form {
  std::uint8_t mask, lead;
  std::size_t bytes;
  std::uint32_t least;
};
constexpr std::array kForms = {Form{0x80, 0x00, 1, 0}, Form{0xe0, 0xc0, 2, 0x80}, Form{0xf0, 0xe0, 3, 0x800},
                               Form{0xf8, 0xf0, 4, 0x10000}};

Character first_character(std::string_view text) {
  const auto byte_at = [text](std::size_t i) { return static_cast<std::uint8_t>(text[i]); };
  const auto* const form = std::ranges::find_if(
      kForms, [&](const Form& candidate) { return (byte_at(0) & candidate.mask) == candidate.lead; });
  if (form == kForms.end() || text.size() < form->bytes) return {};
  std::uint32_t code = byte_at(0) & static_cast<std::uint8_t>(~form->mask);
  for (std::size_t i = 1; i < form->bytes; ++i) {
    if ((byte_at(i) & 0xc0) != 0x80) return {};
    code = code << 6 | (byte_at(i) & 0x3f);
  }
  const bool is_surrogate = code >= 0xd800 && code <= 0xdfff;
  if (code < form->least || code > 0x10ffff || is_surrogate) return {};
  return {form->bytes, code};
}

bool is_printable(std::uint32_t code) {
  if (code == '\n') return true;
  if (code < 0x20 || (code >= 0x7f && code < 0xa0)) return false;
  const bool changes_direction = code == 0x200e || code == 0x200f || (code >= 0x2028 && code <= 0x202e) ||
                                 (code >= 0x2066 && code <= 0x2069) || code == 0x61c;
  return !changes_direction && code != 0xfeff;
}

void append_escaped(std::string& shown, std::string_view bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  for (const char byte : bytes) {
    const auto value = static_cast<std::uint8_t>(byte);
    shown += {'\\', 'x', kDigits[value >> 4], kDigits[value & 15]};
  }
}

}  // namespace

std::string printable(std::string_view text) {
  std::string shown;
  shown.reserve(text.size());
  while (!text.empty()) {
    const Character character = first_character(text);
    const std::string_view bytes = text.substr(0, std::max<std::size_t>(character.bytes, 1));
    if (character.bytes > 0 && is_printable(character.code)) {
      shown += bytes;
    } else {
      append_escaped(shown, bytes);
    }
    text.remove_prefix(bytes.size());
  }
  return shown;
}

}  // namespace tulle
