#include "cli/common/numbers.hpp"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <optional>

#include "tulle/base/error.hpp"

namespace tulle::cli {
namespace {

template <class Number>
std::optional<Number> number_from(std::string_view text) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

[[noreturn]] void reject(std::string_view text, std::string_view expected) {
  throw Error(ErrorKind::bad_input, fmt::format("'{}' is not {}", text, expected));
}

std::optional<std::uint64_t> checked_product(std::uint64_t a, std::uint64_t b) {
  std::uint64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product)) return std::nullopt;
  return product;
}

std::optional<std::uint64_t> power_from(std::string_view text, std::size_t caret) {
  const auto base = number_from<std::uint64_t>(text.substr(0, caret));
  const auto exponent = number_from<unsigned>(text.substr(caret + 1));
  if (!base || !exponent || *exponent > 64) return std::nullopt;
  std::optional<std::uint64_t> power = 1;
  for (unsigned i = 0; i < *exponent && power; ++i) power = checked_product(*power, *base);
  return power;
}

std::optional<std::uint64_t> scaled_from(std::string_view text) {
  constexpr std::string_view kSuffixes = "KMGT";
  const std::size_t place = kSuffixes.find(text.back());
  const auto number = number_from<std::uint64_t>(text.substr(0, text.size() - 1));
  if (place == std::string_view::npos || !number) return std::nullopt;
  return checked_product(*number, std::uint64_t{1} << (10 * (place + 1)));
}

// "1e6", "1.5e6": a float that is a whole number and small enough to be exact.
std::optional<std::uint64_t> scientific_from(std::string_view text) {
  const auto number = number_from<double>(text);
  if (!number || !(*number >= 0 && *number <= 0x1p53) || *number != std::floor(*number)) return std::nullopt;
  return static_cast<std::uint64_t>(*number);
}

std::optional<std::uint64_t> count_from(std::string_view text) {
  if (text.empty()) return std::nullopt;
  if (const auto plain = number_from<std::uint64_t>(text)) return plain;
  if (const std::size_t caret = text.find('^'); caret != std::string_view::npos) return power_from(text, caret);
  if (const auto scaled = scaled_from(text)) return scaled;
  return scientific_from(text);
}

}  // namespace

std::uint64_t parse_count(std::string_view text) {
  const auto count = count_from(text);
  if (!count) reject(text, "a whole number below 2^64 such as 16777216, 2^24, 16M or 1e6");
  return *count;
}

double parse_real(std::string_view text) {
  const auto number = number_from<double>(text);
  if (!number || !(*number >= 0) || std::isinf(*number)) reject(text, "a number from 0 on such as 0.5 or 1e-3");
  return *number;
}

double parse_share(std::string_view text) {
  const bool is_percent = text.ends_with('%');
  const auto number = number_from<double>(is_percent ? text.substr(0, text.size() - 1) : text);
  const double share = number ? *number / (is_percent ? 100 : 1) : -1;
  if (!(share >= 0 && share <= 1)) reject(text, "a share from 0 to 1 such as 0.01 or 1%");
  return share;
}

std::string format_seconds(double seconds) {
  if (seconds < 99.95e-9) return fmt::format("{:.3g} ns", seconds * 1e9);
  if (seconds < 999.5e-6) return fmt::format("{:.3g} us", seconds * 1e6);
  if (seconds < 0.9995) return fmt::format("{:.3g} ms", seconds * 1e3);
  return fmt::format("{:.3g} s", seconds);
}

std::string format_bytes(double bytes) {
  if (bytes < 999.5) return fmt::format("{:.0f} B", bytes);
  for (const char* unit : {"kB", "MB", "GB"}) {
    bytes /= 1000;
    if (bytes < 999.5) return fmt::format("{:.3g} {}", bytes, unit);
  }
  return fmt::format("{:.3g} TB", bytes / 1000);
}

}  // namespace tulle::cli
