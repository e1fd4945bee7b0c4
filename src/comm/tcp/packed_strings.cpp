#include "comm/tcp/packed_strings.hpp"

#include <fmt/format.h>

#include <cstring>

#include "tulle/base/error.hpp"

namespace tulle {

void append_u32(std::string& text, std::uint32_t number) {
  text.append(reinterpret_cast<const char*>(&number), sizeof number);
}

std::uint32_t u32_at(std::string_view text, std::size_t at) {
  std::uint32_t number = 0;
  std::memcpy(&number, text.data() + at, sizeof number);
  return number;
}

std::string pack_strings(const std::vector<std::string>& strings) {
  std::string text;
  for (const std::string& each : strings) {
    append_u32(text, static_cast<std::uint32_t>(each.size()));
    text += each;
  }
  return text;
}

std::vector<std::string> unpack_strings(std::string_view text, std::size_t count, std::string_view source) {
  std::vector<std::string> strings;
  std::size_t at = 0;
  while (at + 4 <= text.size()) {
    const std::uint32_t length = u32_at(text, at);
    if (length > text.size() - at - 4) break;
    strings.emplace_back(text.substr(at + 4, length));
    at += 4 + length;
  }
  if (at == text.size() && strings.size() == count) return strings;
  throw Error(ErrorKind::bad_message, fmt::format("{} is not {} strings", source, count));
}

}  // namespace tulle
