#include "tulle/linear/generate.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "tulle/base/error.hpp"
#include "tulle/base/philox.hpp"

namespace tulle::linear {
namespace {

// Features before this frequency rank are in almost every row and tell nothing.
constexpr std::uint64_t kFirstTelling = 32;
// How much a telling feature may prefer one class. At this, a row of a hundred features is told right almost always.
constexpr double kStrength = 0.45;

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

// From −1, mostly in rows of class −1, to 1.
double preference(std::uint64_t seed, std::uint64_t frequency_rank) {
  if (frequency_rank < kFirstTelling) return 0;
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
        used_(options.used_features > 0 ? options.used_features : options.features),
        draws_(draws_for(options.nonzeros_per_row, static_cast<double>(used_))),
        log_used_(std::log(static_cast<double>(used_))),
        factor_(spreading_factor(options.features)) {}

  void make(std::uint64_t row, Rows& rows) {
    Philox random(options_.seed, row);
    const float label = random.uniform() < 0.5 ? 1.0f : -1.0f;
    const bool is_turned = random.uniform() < options_.noise;
    draw_words(random, label);
    scatter();
    const float scale = options_.is_binary ? 1.0f : 1.0f / length();
    for (const Word& word : words_) rows.add(word.index, options_.is_binary ? 1.0f : word.count * scale);
    rows.end_row(is_turned ? -label : label);
  }

 private:
  void draw_words(Philox& random, double label) {
    const auto draws = static_cast<std::size_t>(draws_ * (0.5 + random.uniform())) + 1;
    ranks_.clear();
    while (ranks_.size() < draws) {
      const double drawn = std::exp(random.uniform() * log_used_) - 1;
      const std::uint64_t rank = std::min(static_cast<std::uint64_t>(drawn), used_ - 1);
      const double share = (1 + kStrength * label * preference(options_.seed, rank)) / (1 + kStrength);
      if (random.uniform() < share) ranks_.push_back(rank);
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
  std::uint64_t used_;
  double draws_, log_used_;
  std::uint64_t factor_;
  std::vector<std::uint64_t> ranks_;
  std::vector<Word> words_;
};

}  // namespace

GenerateOptions generate_like(std::string_view name) {
  if (name == "url") return {};
  if (name == "webspam")
    return {.features = 16'609'143, .used_features = 680'715, .nonzeros_per_row = 3'730, .is_binary = false};
  throw Error(ErrorKind::bad_input, fmt::format("'{}' is not one of url, webspam", name));
}

Rows generate_rows(const GenerateOptions& options, std::uint64_t first, std::uint64_t count) {
  if (options.features < 2 || options.features > kMaxFeatures) {
    throw Error(ErrorKind::bad_input, fmt::format("features must be 2 to {}", kMaxFeatures));
  }
  if (options.used_features > options.features || options.used_features == 1) {
    throw Error(ErrorKind::bad_input, "used_features must be 0 or 2 to the number of features");
  }
  const std::uint64_t used = options.used_features > 0 ? options.used_features : options.features;
  if (!(options.nonzeros_per_row >= 1) || options.nonzeros_per_row > static_cast<double>(used) / 4) {
    throw Error(ErrorKind::bad_input, "nonzeros_per_row must be 1 to a quarter of the features that occur");
  }
  Rows rows;
  RowMaker maker(options);
  for (std::uint64_t row = first; row < first + count; ++row) maker.make(row, rows);
  return rows;
}

}  // namespace tulle::linear
