// Sentences with slots and intents, in CNTK's text format.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/unpacker.hpp"
#include "tulle/base/error.hpp"
#include "tulle/nn/data.hpp"

namespace tulle::nn {
namespace {

// One line of a file, for messages.
struct Line {
  const std::string& path;
  std::uint64_t number;
  std::string_view text;

  [[noreturn]] void refuse(const std::string& reason) const {
    throw Error(ErrorKind::bad_input, fmt::format("{}:{}: {}", path, number, reason));
  }
};

std::int32_t number_at(const Line& line, std::string_view text, std::string_view what) {
  std::int32_t number = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || number < 0 || number >= 1 << 20)
    line.refuse(fmt::format("expected the number of {}", what));
  return number;
}

// What `|NAME number:1` says, or nothing where the line has no such stream.
std::optional<std::int32_t> value_of(const Line& line, std::string_view stream) {
  const std::size_t at = line.text.find(stream);
  if (at == std::string_view::npos) return std::nullopt;
  return number_at(line, line.text.substr(at + stream.size()), stream.substr(1, stream.size() - 2));
}

void count(std::int32_t number, std::uint32_t& bound) {
  bound = std::max(bound, static_cast<std::uint32_t>(number) + 1);
}

// Adds a word to the last sentence, or to a new one where the sentence's number is another.
void append(const Line& line, std::int32_t& sentence, Utterances& utterances) {
  const std::int32_t number = number_at(line, line.text, "the sentence");
  const auto word = value_of(line, "|S0 "), intent = value_of(line, "|S1 "), slot = value_of(line, "|S2 ");
  if (!word || !slot) line.refuse("expected a word (|S0) and a slot (|S2)");
  if (number != sentence) {
    if (!intent) line.refuse("a sentence begins, and has no intent (|S1)");
    utterances.intent.push_back(*intent);
    count(*intent, utterances.intents);
    utterances.starts.push_back(utterances.starts.back());
    sentence = number;
  }
  utterances.word.push_back(*word);
  utterances.slot.push_back(*slot);
  count(*word, utterances.words);
  count(*slot, utterances.slots);
  utterances.starts.back() += 1;
}

}  // namespace

Utterances read_ctf(const std::string& path) {
  const std::string contents = read_unpacked(path);
  Utterances utterances;
  std::int32_t sentence = -1;
  std::uint64_t number = 0;
  for (std::size_t at = 0; at < contents.size();) {
    const std::size_t end = std::min(contents.find('\n', at), contents.size());
    const Line line{path, ++number, std::string_view(contents).substr(at, end - at)};
    if (line.text.find_first_not_of(" \t\r") != std::string_view::npos) append(line, sentence, utterances);
    at = end + 1;
  }
  if (utterances.size() == 0) throw Error(ErrorKind::bad_input, fmt::format("{}: no sentence", path));
  return utterances;
}

}  // namespace tulle::nn
