#include "collectives/index_choice.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/did_you_mean.hpp"
#include "tulle/base/error.hpp"
#include "tulle/codec/registry.hpp"
#include "tulle/collectives/registry.hpp"

namespace tulle {
namespace {

const IndexCodec& row_named(std::string_view name) {
  std::string allowed = fmt::format("{}, {}", kAuto, kSmallest);
  for (const IndexCodec& row : index_codecs()) {
    if (row.name == name) return row;
    allowed += fmt::format(", {}", row.name);
  }
  throw Error(ErrorKind::bad_input, fmt::format("no index coding is called '{}'; there are {}{}", name, allowed,
                                                did_you_mean(name, allowed)));
}

}  // namespace

std::string_view index_coding_named(std::string_view name) {
  return name == kAuto ? kAuto : name == kSmallest ? kSmallest : row_named(name).name;
}

IndexChoice::IndexChoice(std::string_view name, const Profile& profile)
    : rule_(name == kAuto       ? Rule::automatic
            : name == kSmallest ? Rule::smallest
                                : Rule::named),
      profile_(profile) {
  if (rule_ == Rule::named) named_ = row_named(name).coding;
}

double IndexChoice::seconds(IndexCoding coding) const {
  switch (coding) {
    case IndexCoding::delta_vbyte: return profile_.gamma_delta_vbyte_seconds;
    case IndexCoding::bitmap: return profile_.gamma_bitmap_seconds;
    case IndexCoding::rice: return profile_.gamma_rice_seconds;
    default: return 0;
  }
}

// The smallest coding ignores what it costs to compute.
double IndexChoice::price(IndexCoding coding, double bits) const {
  return rule_ == Rule::smallest ? bits : bits / 8 * profile_.beta_seconds_per_byte + seconds(coding);
}

IndexCoding IndexChoice::for_density(double density, std::size_t index_width) const {
  if (rule_ == Rule::named) return named_;
  const auto price_of = [&](const IndexCodec& row) {
    return price(row.coding, row.expected_bits(density, index_width));
  };
  return std::ranges::min_element(index_codecs(), {}, price_of)->coding;
}

IndexCoding IndexChoice::for_stream(const AnyStream& stream) const {
  if (stream.is_dense()) return IndexCoding::none;
  if (stream.nnz() == 0) return IndexCoding::raw;
  if (rule_ == Rule::smallest && !stream.is_phantom()) return smallest_index_coding(stream);
  return for_density(stream.density(), stream.index_width());
}

double IndexChoice::bits(double density, std::size_t index_width) const {
  return expected_index_bits(for_density(density, index_width), density, index_width);
}

// Prices are per value of the range. Where a coding was named they are bytes: SparCML's δ for raw indices.
double IndexChoice::dense_price(double value_bytes) const {
  if (rule_ != Rule::automatic) return value_bytes;
  return value_bytes * profile_.beta_seconds_per_byte + profile_.gamma_dense_seconds;
}

double IndexChoice::sparse_price(IndexCoding coding, double density, double value_bytes,
                                 std::size_t index_width) const {
  const double bytes = value_bytes + expected_index_bits(coding, density, index_width) / 8;
  if (rule_ != Rule::automatic) return density * bytes;
  return density * (bytes * profile_.beta_seconds_per_byte + seconds(coding) + profile_.gamma_sparse_seconds);
}

bool IndexChoice::is_sparse(double density, double value_bytes, std::size_t index_width) const {
  const IndexCoding coding = for_density(density, index_width);
  return sparse_price(coding, density, value_bytes, index_width) <= dense_price(value_bytes);
}

// Where the price of one coding meets the dense one. An index takes the same bits at every density (raw), or the range
// does (bitmap): the price is then a straight line.
double IndexChoice::fill_of(IndexCoding coding, double value_bytes, std::size_t index_width) const {
  const double low = sparse_price(coding, 0.5, value_bytes, index_width);
  const double slope = 2 * (sparse_price(coding, 1, value_bytes, index_width) - low);
  return 0.5 + (dense_price(value_bytes) - low) / slope;
}

// Called for every operation: halving is for the codings whose price is no line, which few thresholds meet.
LayoutRule IndexChoice::layout_rule(double value_bytes, std::size_t index_width) const {
  constexpr double kLeast = 0.01, kAlmostFull = 0.9;
  const IndexCoding coding = for_density(kAlmostFull, index_width);
  if (coding == IndexCoding::raw || coding == IndexCoding::bitmap) {
    const double fill = std::clamp(fill_of(coding, value_bytes, index_width), kLeast, 1.0);
    // Rounding shall not make a sum of exactly δ dense.
    if (for_density(fill, index_width) == coding) return LayoutRule::sparse_up_to(fill * (1 + 1e-12));
  }
  double low = kLeast, high = 1;
  for (int halving = 0; halving < 12; ++halving) {
    const double middle = (low + high) / 2;
    (is_sparse(middle, value_bytes, index_width) ? low : high) = middle;
  }
  return LayoutRule::sparse_up_to(low);
}

}  // namespace tulle
