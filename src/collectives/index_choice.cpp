#include "collectives/index_choice.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "tulle/base/error.hpp"
#include "tulle/codec/registry.hpp"
#include "tulle/collectives/algorithm.hpp"

namespace tulle {
namespace {

IndexCoding coding_named(std::string_view name) {
  std::string allowed = fmt::format("{}, {}", kAuto, kSmallest);
  for (const IndexCodec& row : index_codecs()) {
    if (row.name == name) return row.coding;
    allowed += fmt::format(", {}", row.name);
  }
  throw Error(ErrorKind::bad_input, fmt::format("no index coding is called '{}'; there are {}", name, allowed));
}

}  // namespace

IndexChoice::IndexChoice(std::string_view name, const Profile& profile)
    : rule_(name == kAuto       ? Rule::automatic
            : name == kSmallest ? Rule::smallest
                                : Rule::named),
      profile_(profile) {
  if (rule_ == Rule::named) named_ = coding_named(name);
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

// Where more than every second value is there, indices go as a bitmap: β/8 for every value of the extent.
LayoutRule IndexChoice::layout_rule(double value_bytes) const {
  constexpr double kAlmostFull = 0.9;
  if (for_density(kAlmostFull, sizeof(std::uint32_t)) != IndexCoding::bitmap) return {};
  const double beta = profile_.beta_seconds_per_byte;
  if (rule_ != Rule::automatic) return LayoutRule::sparse_up_to(1 - 1 / (8 * value_bytes));
  const double dense = value_bytes * beta - beta / 8 + profile_.gamma_dense_seconds;
  const double sparse = value_bytes * beta + profile_.gamma_bitmap_seconds + profile_.gamma_sparse_seconds;
  return LayoutRule::sparse_up_to(std::clamp(dense / sparse, 0.01, 1.0));
}

}  // namespace tulle
