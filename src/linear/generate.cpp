#include "tulle/linear/generate.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "tulle/base/error.hpp"
#include "tulle/base/philox.hpp"

namespace tulle::linear {
namespace {

// The hidden model knows the features of these frequency ranks: more frequent ones are in almost every row, rarer ones
// are seen too seldom to learn.
constexpr std::uint64_t kFirstKnown = 32, kLastKnown = 30'000;

// Draws that give `distinct` different features on average: solves n/L·(ln(L·N/n) + 0.42) = distinct, L = ln N, which
// is the expected number of different ones among n draws of weight 1/j.
double draws_for(double distinct, double features) {
  const double spread = std::log(features);
  double least = distinct, most = 100 * distinct;
  for (int i = 0; i < 60; ++i) {
    const double middle = (least + most) / 2;
    const double expected = middle / spread * (std::log(spread * features / middle) + 0.42);
    (expected < distinct ? least : most) = middle;
  }
  return least;
}

// A number without common divisors with N spreads the ranks of frequency over the dimension, each to its own place.
std::uint64_t spreading_factor(std::uint64_t features) {
  std::uint64_t factor = 2'654'435'761u % features;
  while (std::gcd(factor, features) != 1) ++factor;
  return factor;
}

double hidden_weight(std::uint64_t seed, std::uint64_t frequency_rank) {
  if (frequency_rank < kFirstKnown || frequency_rank >= kLastKnown) return 0;
  return static_cast<double>(Philox(seed, ~std::uint64_t{0}).at(frequency_rank) >> 11) * 0x1p-52 - 1;
}

struct Word {
  std::uint32_t index;
  float count;
};

class RowMaker {
 public:
  explicit RowMaker(const GenerateOptions& options)
      : options_(options),
        draws_(draws_for(options.nonzeros_per_row, static_cast<double>(options.features))),
        log_features_(std::log(static_cast<double>(options.features))),
        factor_(spreading_factor(options.features)) {}

  void make(std::uint64_t row, Rows& rows) {
    Philox random(options_.seed, row);
    draw_words(random);
    double evidence = 0;
    for (const Word& word : words_) evidence += hidden_weight(options_.seed, word.index) * word.count;
    const bool is_turned = random.uniform() < options_.noise;
    scatter();
    const float scale = options_.is_binary ? 1.0f : 1.0f / length();
    for (const Word& word : words_) rows.add(word.index, options_.is_binary ? 1.0f : word.count * scale);
    rows.end_row((evidence > 0) != is_turned ? 1.0f : -1.0f);
  }

 private:
  void draw_words(Philox& random) {
    const auto draws = static_cast<std::size_t>(draws_ * (0.5 + random.uniform())) + 1;
    ranks_.clear();
    for (std::size_t i = 0; i < draws; ++i) {
      const double rank = std::exp(random.uniform() * log_features_) - 1;
      ranks_.push_back(std::min(static_cast<std::uint64_t>(rank), options_.features - 1));
    }
    std::sort(ranks_.begin(), ranks_.end());
    words_.clear();
    for (const std::uint64_t rank : ranks_) {
      if (words_.empty() || words_.back().index != rank) words_.push_back({static_cast<std::uint32_t>(rank), 0});
      words_.back().count += 1;
    }
  }

  void scatter() {
    for (Word& word : words_) word.index = static_cast<std::uint32_t>(word.index * factor_ % options_.features);
    std::sort(words_.begin(), words_.end(), [](const Word& a, const Word& b) { return a.index < b.index; });
  }

  float length() const {
    float squares = 0;
    for (const Word& word : words_) squares += word.count * word.count;
    return std::sqrt(squares);
  }

  GenerateOptions options_;
  double draws_, log_features_;
  std::uint64_t factor_;
  std::vector<std::uint64_t> ranks_;
  std::vector<Word> words_;
};

}  // namespace

GenerateOptions generate_like(std::string_view name) {
  if (name == "url") return {};
  if (name == "webspam") return {.features = 16'609'143, .nonzeros_per_row = 3'730, .is_binary = false};
  throw Error(ErrorKind::bad_input, fmt::format("'{}' is not one of url, webspam", name));
}

Rows generate_rows(const GenerateOptions& options, std::uint64_t first, std::uint64_t count) {
  if (options.features < 2 || options.features > kMaxFeatures) {
    throw Error(ErrorKind::bad_input, fmt::format("features must be 2 to {}", kMaxFeatures));
  }
  if (!(options.nonzeros_per_row >= 1) || options.nonzeros_per_row > static_cast<double>(options.features) / 4) {
    throw Error(ErrorKind::bad_input, "nonzeros_per_row must be 1 to a quarter of the features");
  }
  Rows rows;
  RowMaker maker(options);
  for (std::uint64_t row = first; row < first + count; ++row) maker.make(row, rows);
  return rows;
}

}  // namespace tulle::linear
