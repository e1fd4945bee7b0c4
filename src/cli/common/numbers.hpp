// Numbers as people type and read them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tulle::cli {

/// A whole number: "16777216", "2^24", "16M" (K, M, G and T are powers of 1024) or "1e6". Throws bad_input.
std::uint64_t parse_count(std::string_view text);
/// A number that is not negative: "0.5", "1e-3". Throws bad_input.
double parse_real(std::string_view text);
/// A share from 0 to 1: "0.01" or "1%". Throws bad_input.
double parse_share(std::string_view text);

/// "0.31 ns", "812 us", "1.93 ms" or "1.24 s".
std::string format_seconds(double seconds);
/// "512 B", "1.3 MB": powers of 1000, as networks count.
std::string format_bytes(double bytes);

}  // namespace tulle::cli
