// Text as numbers: words by frequency, or bytes.
#include <fmt/format.h>

#include <algorithm>

#include "base/unpacker.hpp"
#include "tulle/base/error.hpp"
#include "tulle/nn/data.hpp"

namespace tulle::nn {
namespace {

constexpr std::string_view kEndOfLine = "\n";

// Calls `take` with each word and each end of a line.
template <class Take>
void each_word(std::string_view text, Take take) {
  for (std::size_t at = 0; at < text.size();) {
    if (text[at] == '\n') {
      take(kEndOfLine);
      ++at;
    } else if (text[at] == ' ' || text[at] == '\t' || text[at] == '\r') {
      ++at;
    } else {
      const std::size_t end = std::min(text.find_first_of(" \t\r\n", at), text.size());
      take(text.substr(at, end - at));
      at = end;
    }
  }
}

std::vector<std::int32_t> bytes_of(const std::string& text) {
  std::vector<std::int32_t> numbers;
  numbers.reserve(text.size());
  for (const char character : text) numbers.push_back(static_cast<std::uint8_t>(character));
  return numbers;
}

void require_symbols(const std::string& path, std::string_view part, std::size_t symbols) {
  if (symbols >= 2) return;
  throw Error(ErrorKind::bad_input,
              fmt::format("{}: {} has {} symbols, of which each predicts the next", path, part, symbols));
}

}  // namespace

Vocabulary Vocabulary::of(const std::string& text, std::uint32_t limit) {
  struct Seen {
    std::uint64_t times = 0, first = 0;
  };
  std::map<std::string, Seen, std::less<>> seen;
  each_word(text, [&](std::string_view word) {
    auto found = seen.find(word);
    if (found == seen.end()) found = seen.emplace(word, Seen{0, seen.size()}).first;
    found->second.times += 1;
  });
  std::vector<std::pair<Seen, const std::string*>> ranked;
  ranked.reserve(seen.size());
  for (const auto& [word, facts] : seen) ranked.emplace_back(facts, &word);
  std::sort(ranked.begin(), ranked.end(), [](const auto& a, const auto& b) {
    return a.first.times != b.first.times ? a.first.times > b.first.times : a.first.first < b.first.first;
  });
  if (limit > 0 && ranked.size() > limit - 1) ranked.resize(limit - 1);
  Vocabulary vocabulary;
  for (std::size_t i = 0; i < ranked.size(); ++i) {
    vocabulary.numbers_[*ranked[i].second] = static_cast<std::int32_t>(i) + 1;
  }
  return vocabulary;
}

std::vector<std::int32_t> Vocabulary::numbers_of(const std::string& text) const {
  std::vector<std::int32_t> numbers;
  each_word(text, [&](std::string_view word) {
    const auto found = numbers_.find(word);
    numbers.push_back(found == numbers_.end() ? 0 : found->second);
  });
  return numbers;
}

Text read_text(const std::string& train_path, const std::optional<std::string>& test_path, TextUnit unit,
               std::uint32_t vocabulary_limit) {
  std::string train = read_unpacked(train_path);
  std::string test;
  if (test_path) {
    test = read_unpacked(*test_path);
  } else {  // the last tenth, from the beginning of a line where there is one
    const std::size_t line = train.find('\n', train.size() / 10 * 9);
    const std::size_t cut = line == std::string::npos ? train.size() / 10 * 9 : line + 1;
    test = train.substr(cut);
    train.resize(cut);
  }
  Text text;
  if (unit == TextUnit::bytes) {
    text = {.symbols = 256, .train = bytes_of(train), .test = bytes_of(test)};
  } else {
    const Vocabulary vocabulary = Vocabulary::of(train, vocabulary_limit);
    text = {.symbols = vocabulary.size(), .train = vocabulary.numbers_of(train), .test = vocabulary.numbers_of(test)};
  }
  require_symbols(train_path, "its text", text.train.size());
  require_symbols(test_path.value_or(train_path), test_path ? "its text" : "the tenth that is held out",
                  text.test.size());
  return text;
}

}  // namespace tulle::nn
