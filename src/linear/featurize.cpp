#include "tulle/linear/featurize.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <vector>

#include "tulle/base/error.hpp"

namespace tulle::linear {
namespace {

// What a hash is of, so that a token of three letters is not the trigram.
enum Kind : std::uint64_t { kTrigram = 1, kToken = 2, kBigram = 3 };

std::uint64_t mix(std::uint64_t word) {
  word ^= word >> 31;
  word *= 0x9E3779B97F4A7C15u;
  word ^= word >> 29;
  word *= 0xBF58476D1CE4E5B9u;
  return word ^ word >> 32;
}

std::uint64_t hash_of(std::string_view text, std::uint64_t seed) {
  std::uint64_t hash = seed;
  for (const char letter : text) hash = mix(hash ^ static_cast<unsigned char>(letter)) + text.size();
  return hash;
}

bool is_word_letter(char letter) {
  const auto byte = static_cast<unsigned char>(letter);
  return (byte >= '0' && byte <= '9') || ((byte | 0x20) >= 'a' && (byte | 0x20) <= 'z') || byte >= 0x80;
}

class Hasher {
 public:
  explicit Hasher(const FeaturizeOptions& options) : options_(options) {}

  void add_trigrams(std::string_view text) {
    for (std::size_t i = 0; i + 3 <= text.size(); ++i) add(hash_of(text.substr(i, 3), kTrigram));
  }

  void add_tokens(std::string_view text) {
    std::uint64_t previous = 0;
    for (std::size_t i = 0; i < text.size();) {
      std::size_t end = i;
      while (end < text.size() && is_word_letter(text[end])) ++end;
      if (end > i) {
        const std::uint64_t hash = hash_of(text.substr(i, end - i), kToken);
        if (options_.tokens) add(hash);
        if (options_.token_bigrams && previous != 0) add(mix(hash ^ mix(previous + kBigram)));
        previous = hash;
      }
      i = end + 1;
    }
  }

  void append_to(Rows& rows) {
    std::sort(places_.begin(), places_.end());
    std::vector<std::pair<std::uint32_t, float>> counts;
    float squares = 0;
    for (const std::uint32_t place : places_) {
      if (counts.empty() || counts.back().first != place) counts.emplace_back(place, 0.0f);
      counts.back().second += 1;
    }
    for (const auto& [place, count] : counts) squares += count * count;
    const float scale = options_.value == FeatureValue::unit ? 1 / std::sqrt(squares) : 1.0f;
    for (const auto& [place, count] : counts) {
      rows.add(place, options_.value == FeatureValue::binary ? 1.0f : count * scale);
    }
  }

 private:
  void add(std::uint64_t hash) { places_.push_back(static_cast<std::uint32_t>(hash % options_.dimension)); }

  const FeaturizeOptions& options_;
  std::vector<std::uint32_t> places_;
};

}  // namespace

FeatureValue feature_value_from(std::string_view name) {
  if (name == "binary") return FeatureValue::binary;
  if (name == "count") return FeatureValue::count;
  if (name == "unit") return FeatureValue::unit;
  throw Error(ErrorKind::bad_input, fmt::format("'{}' is not one of binary, count, unit", name));
}

std::optional<LineFault> featurize_line(std::string_view line, const FeaturizeOptions& options, Rows& rows) {
  if (line.ends_with('\r')) line.remove_suffix(1);
  if (line.empty()) return std::nullopt;
  const std::size_t tab = line.find('\t');
  if (tab == std::string_view::npos) return LineFault{"expected a label, a TAB and a text", line.size() + 1};
  float label = 0;
  const std::size_t sign = line.starts_with('+') ? 1 : 0;
  const auto [end, error] = std::from_chars(line.data() + sign, line.data() + tab, label);
  if (error != std::errc() || end != line.data() + tab || !std::isfinite(label)) {
    return LineFault{"expected a label, which is a finite number", 1};
  }
  Hasher hasher(options);
  if (options.trigrams) hasher.add_trigrams(line.substr(tab + 1));
  if (options.tokens || options.token_bigrams) hasher.add_tokens(line.substr(tab + 1));
  hasher.append_to(rows);
  rows.end_row(label);
  return std::nullopt;
}

}  // namespace tulle::linear
