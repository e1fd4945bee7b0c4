// Strings one after the other, each behind its length: what ranks tell each other while they meet.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tulle {

/// As four bytes, little-endian.
void append_u32(std::string& text, std::uint32_t number);
/// REQUIRES: four bytes at `at`.
std::uint32_t u32_at(std::string_view text, std::size_t at);

std::string pack_strings(const std::vector<std::string>& strings);
/// Throws bad_message naming `source` unless the text is `count` strings, no more and no less.
std::vector<std::string> unpack_strings(std::string_view text, std::size_t count, std::string_view source);

}  // namespace tulle
