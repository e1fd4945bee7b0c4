// Tables: a sample a line, fields between tabs, and the label in the last of them.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/unpacker.hpp"
#include "tulle/base/error.hpp"
#include "tulle/nn/data.hpp"

namespace tulle::nn {
namespace {

// A line of a file, cut at its last tab.
struct Line {
  const std::string* path;
  std::uint64_t number;
  std::string_view fields, label;

  [[noreturn]] void refuse(const std::string& reason) const {
    throw Error(ErrorKind::bad_input, fmt::format("{}:{}: {}", *path, number, reason));
  }
};

std::string_view trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t\r"), end = text.find_last_not_of(" \t\r");
  return begin == std::string_view::npos ? std::string_view() : text.substr(begin, end - begin + 1);
}

std::vector<Line> lines_of(const std::string& path, std::string_view contents) {
  std::vector<Line> lines;
  std::uint64_t number = 0;
  for (std::size_t at = 0; at < contents.size();) {
    const std::size_t end = std::min(contents.find('\n', at), contents.size());
    const std::string_view text = contents.substr(at, end - at);
    at = end + 1;
    number += 1;
    if (trimmed(text).empty()) continue;
    const std::size_t tab = text.find_last_of('\t');
    Line line{&path, number, text, {}};
    if (tab == std::string_view::npos) line.refuse("expected a tab and a label behind it");
    line.fields = trimmed(text.substr(0, tab));
    line.label = trimmed(text.substr(tab + 1));
    if (line.label.empty()) line.refuse("expected a label behind the last tab");
    if (line.fields.empty()) line.refuse("expected numbers or words before the label");
    lines.push_back(line);
  }
  if (lines.empty()) throw Error(ErrorKind::bad_input, fmt::format("{}: no line", path));
  return lines;
}

template <class Take>
void each_word(std::string_view text, Take take) {
  for (std::size_t at = text.find_first_not_of(" \t"); at < text.size(); at = text.find_first_not_of(" \t", at)) {
    const std::size_t end = std::min(text.find_first_of(" \t", at), text.size());
    take(text.substr(at, end - at));
    at = end;
  }
}

std::optional<float> number_of(std::string_view word) {
  float number = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
  const bool is_whole = error == std::errc() && end == word.data() + word.size();
  return is_whole && std::isfinite(number) ? std::optional(number) : std::nullopt;
}

bool has_numbers(const Line& line) {
  bool all = true;
  each_word(line.fields, [&](std::string_view word) { all = all && number_of(word).has_value(); });
  return all;
}

// Labels are numbered in the order in which training meets them.
class Labels {
 public:
  std::int32_t add(std::string_view label) {
    return numbers_.try_emplace(std::string(label), static_cast<std::int32_t>(numbers_.size())).first->second;
  }
  std::int32_t find(const Line& line) const {
    const auto found = numbers_.find(line.label);
    if (found == numbers_.end()) line.refuse(fmt::format("no sample to train on has the label '{}'", line.label));
    return found->second;
  }
  std::uint32_t size() const { return static_cast<std::uint32_t>(numbers_.size()); }

 private:
  std::map<std::string, std::int32_t, std::less<>> numbers_;
};

void append_row(const Line& line, std::uint32_t columns, Features& features) {
  const std::size_t before = features.values.size();
  each_word(line.fields, [&](std::string_view word) {
    const std::optional<float> number = number_of(word);
    if (!number) line.refuse(fmt::format("'{}' is no number", word));
    features.values.push_back(*number);
  });
  const std::size_t found = features.values.size() - before;
  if (found != columns) line.refuse(fmt::format("has {} numbers, and the first line {}", found, columns));
}

// By column, over the rows that are trained on; a column of one value becomes zeros.
void normalize(const Features& train, std::uint32_t column, std::initializer_list<Features*> all) {
  double sum = 0, squares = 0;
  for (std::size_t at = column; at < train.values.size(); at += train.columns) {
    sum += train.values[at];
    squares += static_cast<double>(train.values[at]) * train.values[at];
  }
  const auto rows = static_cast<double>(train.size());
  const double mean = sum / rows, variance = std::max(0.0, squares / rows - mean * mean);
  const double scale = variance > 0 ? 1 / std::sqrt(variance) : 0;
  for (Features* const features : all) {
    for (std::size_t at = column; at < features->values.size(); at += train.columns) {
      features->values[at] = static_cast<float>((features->values[at] - mean) * scale);
    }
  }
}

DataSet table_of_numbers(std::span<const Line> train, std::span<const Line> test) {
  DataSet data{.train_features = Features(), .test_features = Features()};
  std::uint32_t columns = 0;
  each_word(train.front().fields, [&](std::string_view) { columns += 1; });
  Labels labels;
  for (const Line& line : train) {
    append_row(line, columns, *data.train_features);
    data.train_features->labels.push_back(labels.add(line.label));
  }
  for (const Line& line : test) {
    append_row(line, columns, *data.test_features);
    data.test_features->labels.push_back(labels.find(line));
  }
  for (Features* const features : {&*data.train_features, &*data.test_features}) {
    features->columns = columns;
    features->classes = labels.size();
  }
  for (std::uint32_t column = 0; column < columns; ++column) {
    normalize(*data.train_features, column, {&*data.test_features, &*data.train_features});
  }
  return data;
}

void append_sentence(const Line& line, const Vocabulary& vocabulary, std::int32_t label, Utterances& utterances) {
  const std::vector<std::int32_t> words = vocabulary.numbers_of(std::string(line.fields));
  utterances.word.insert(utterances.word.end(), words.begin(), words.end());
  utterances.slot.insert(utterances.slot.end(), words.size(), kNoSlot);
  utterances.starts.push_back(utterances.word.size());
  utterances.intent.push_back(label);
}

DataSet table_of_texts(std::span<const Line> train, std::span<const Line> test, std::uint32_t vocabulary_limit) {
  DataSet data{.train_utterances = Utterances(), .test_utterances = Utterances()};
  std::string text;
  for (const Line& line : train) text += std::string(line.fields) + " ";
  const Vocabulary vocabulary = Vocabulary::of(text, vocabulary_limit);
  Labels labels;
  for (const Line& line : train) append_sentence(line, vocabulary, labels.add(line.label), *data.train_utterances);
  for (const Line& line : test) append_sentence(line, vocabulary, labels.find(line), *data.test_utterances);
  for (Utterances* const utterances : {&*data.train_utterances, &*data.test_utterances}) {
    utterances->words = vocabulary.size();
    utterances->slots = 1;
    utterances->intents = labels.size();
  }
  return data;
}

}  // namespace

DataSet read_tsv(const std::string& train_path, const std::optional<std::string>& test_path,
                 std::uint32_t vocabulary_limit) {
  const std::string contents = read_unpacked(train_path);
  const std::string test_contents = test_path ? read_unpacked(*test_path) : "";
  const std::vector<Line> lines = lines_of(train_path, contents);
  std::span<const Line> train = lines, test;
  std::vector<Line> test_lines;
  if (test_path) {
    test = test_lines = lines_of(*test_path, test_contents);
  } else {
    const std::size_t held_out = std::max<std::size_t>(1, lines.size() / 10);
    test = train.last(held_out);
    train = train.first(lines.size() - held_out);
  }
  if (train.empty()) throw Error(ErrorKind::bad_input, fmt::format("{}: one line, which is held out", train_path));
  return has_numbers(train.front()) ? table_of_numbers(train, test) : table_of_texts(train, test, vocabulary_limit);
}

}  // namespace tulle::nn
