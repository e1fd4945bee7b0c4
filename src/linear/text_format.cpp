#include "tulle/linear/text_format.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <numeric>

namespace tulle::linear {
namespace {

constexpr double kPowersOfTen[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                   1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};

bool is_digit(char c) { return static_cast<unsigned char>(c - '0') < 10; }
bool is_separator(char c) { return c == ' ' || c == '\t' || c == ',' || c == '\r'; }

// One line from left to right. The first fault is remembered, and everything after it does nothing.
class Cursor {
 public:
  explicit Cursor(std::string_view line) : begin_(line.data()), at_(begin_), end_(begin_ + line.size()) {}

  bool is_at_end() const { return at_ == end_; }
  char peek() const { return at_ == end_ ? '\n' : *at_; }
  void skip() { ++at_; }
  void skip_separators() {
    while (at_ != end_ && is_separator(*at_)) ++at_;
  }
  void skip_word() {
    while (at_ != end_ && !is_separator(*at_)) ++at_;
  }
  bool starts_with(std::string_view word) const {
    return std::string_view(at_, static_cast<std::size_t>(end_ - at_)).starts_with(word);
  }
  bool ends_word() const { return at_ == end_ || is_separator(*at_) || *at_ == '#'; }

  bool read(std::uint64_t& number) {
    const char* const start = at_;
    number = 0;
    for (; at_ != end_ && is_digit(*at_) && at_ - start < 12; ++at_)
      number = number * 10 + static_cast<unsigned>(*at_ - '0');
    return at_ != start;
  }

  // Digits that fit a double exactly, scaled by a power of ten that does too, give the correctly rounded number;
  // anything else is left to from_chars.
  bool read(float& number) {
    const char* const start = at_;
    const bool is_negative = peek() == '-';
    if (is_negative || peek() == '+') ++at_;
    std::uint64_t digits = 0;
    const char* const first_digit = at_;
    while (at_ != end_ && is_digit(*at_)) digits = digits * 10 + static_cast<unsigned>(*at_++ - '0');
    std::ptrdiff_t count = at_ - first_digit, decimals = 0;
    if (peek() == '.') {
      const char* const first_decimal = ++at_;
      while (at_ != end_ && is_digit(*at_)) digits = digits * 10 + static_cast<unsigned>(*at_++ - '0');
      decimals = at_ - first_decimal;
      count += decimals;
    }
    if (count == 0 || count > 15 || peek() == 'e' || peek() == 'E') return read_slowly(start, number);
    const double magnitude = static_cast<double>(digits) / kPowersOfTen[decimals];
    number = static_cast<float>(is_negative ? -magnitude : magnitude);
    return true;
  }

  std::size_t column() const { return static_cast<std::size_t>(at_ - begin_) + 1; }

 private:
  bool read_slowly(const char* start, float& number) {
    double value = 0;
    const bool has_plus = start != end_ && *start == '+';
    const auto [end, error] = std::from_chars(start + (has_plus ? 1 : 0), end_, value);
    at_ = error == std::errc() ? end : start;
    number = static_cast<float>(value);
    return error == std::errc() && std::isfinite(number);
  }

  const char* begin_;
  const char* at_;
  const char* end_;
};

std::optional<LineFault> fault_at(const Cursor& cursor, std::string reason) {
  return LineFault{std::move(reason), cursor.column()};
}

// Entries came in another order: sorts them, and finds what is there twice.
std::optional<LineFault> sort_open_row(const Cursor& cursor, const TextOptions& options, Rows& rows) {
  const auto indices = rows.open_indices();
  const auto values = rows.open_values();
  std::vector<std::pair<std::uint32_t, float>> entries;
  for (std::size_t i = 0; i < indices.size(); ++i) entries.emplace_back(indices[i], values.empty() ? 1.0f : values[i]);
  std::sort(entries.begin(), entries.end());
  for (std::size_t i = 0; i < entries.size(); ++i) {
    if (i > 0 && entries[i].first == entries[i - 1].first) {
      return fault_at(cursor,
                      fmt::format("index {} is there twice", std::uint64_t{entries[i].first} + options.first_index));
    }
    indices[i] = entries[i].first;
    if (!values.empty()) values[i] = entries[i].second;
  }
  return std::nullopt;
}

std::optional<LineFault> parse_pairs(Cursor& cursor, const TextOptions& options, Rows& rows) {
  std::int64_t previous = -1;
  bool is_sorted = true;
  for (cursor.skip_separators(); !cursor.is_at_end() && cursor.peek() != '#'; cursor.skip_separators()) {
    if (cursor.peek() == 'q' && cursor.starts_with("qid:")) {
      cursor.skip_word();
      continue;
    }
    std::uint64_t index = 0;
    if (!cursor.read(index)) return fault_at(cursor, "expected an index");
    if (cursor.peek() != ':') return fault_at(cursor, "expected ':' after the index");
    if (index < options.first_index) return fault_at(cursor, fmt::format("indices begin with {}", options.first_index));
    index -= options.first_index;
    if (index >= kMaxFeatures) return fault_at(cursor, "the index is too large");
    cursor.skip();
    float value = 0;
    if (!cursor.read(value) || !cursor.ends_word()) return fault_at(cursor, "expected a finite number");
    is_sorted = is_sorted && static_cast<std::int64_t>(index) > previous;
    previous = static_cast<std::int64_t>(index);
    rows.add(static_cast<std::uint32_t>(index), value);
  }
  return is_sorted ? std::nullopt : sort_open_row(cursor, options, rows);
}

std::optional<LineFault> parse_columns(Cursor& cursor, Rows& rows) {
  const auto skip_blanks = [&] {
    while (cursor.peek() == ' ' || cursor.peek() == '\t' || cursor.peek() == '\r') cursor.skip();
  };
  for (std::uint32_t index = 0;; ++index) {
    skip_blanks();
    if (cursor.is_at_end()) return std::nullopt;
    if (cursor.peek() != ',') return fault_at(cursor, "expected ','");
    cursor.skip();
    skip_blanks();
    if (cursor.is_at_end() || cursor.peek() == ',') continue;
    float value = 0;
    if (!cursor.read(value)) return fault_at(cursor, "expected a finite number");
    if (value != 0) rows.add(index, value);
  }
}

}  // namespace

std::optional<LineFault> parse_line(std::string_view line, const TextOptions& options, Rows& rows) {
  Cursor cursor(line);
  if (options.format == TextFormat::libsvm) cursor.skip_separators();
  if (cursor.is_at_end() || cursor.peek() == '#') return std::nullopt;
  float label = 0;
  std::optional<LineFault> fault;
  if (!cursor.read(label) || !cursor.ends_word()) {
    fault = fault_at(cursor, "expected a label, which is a finite number");
  } else {
    fault = options.format == TextFormat::libsvm ? parse_pairs(cursor, options, rows) : parse_columns(cursor, rows);
  }
  if (fault) {
    rows.drop_open_row();
  } else {
    rows.end_row(label);
  }
  return fault;
}

void parse_lines(std::string_view text, const ParseLine& parse, Rows& rows, const OnFault& on_fault) {
  for (std::size_t offset = 0; offset < text.size();) {
    const void* const found = std::memchr(text.data() + offset, '\n', text.size() - offset);
    const std::size_t end =
        found == nullptr ? text.size() : static_cast<std::size_t>(static_cast<const char*>(found) - text.data());
    const std::string_view line = text.substr(offset, end - offset);
    if (const auto fault = parse(line, rows)) on_fault(offset, line, *fault);
    offset = end + 1;
  }
}

}  // namespace tulle::linear
