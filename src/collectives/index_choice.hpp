// Which index coding a frame gets: the one asked for, the smallest, or the one that saves more on the wire than it
// costs.
#pragma once

#include <optional>
#include <string_view>

#include "tulle/codec/index_coding.hpp"
#include "tulle/comm/profile.hpp"
#include "tulle/stream/reduction.hpp"

namespace tulle {

/// The name as the registry has it, which outlives the caller's text. Throws bad_input listing what there is.
std::string_view index_coding_named(std::string_view name);

class IndexChoice {
 public:
  /// Throws bad_input listing what there is.
  IndexChoice(std::string_view name, const Profile& profile);

  /// Frames say how they are coded, so every rank decides for its own.
  IndexCoding for_stream(const AnyStream& stream) const;
  /// The same for `density`, where there is no stream yet.
  IndexCoding for_density(double density, std::size_t index_width) const;

  double bits(double density, std::size_t index_width) const;
  /// Of encoding and decoding one index.
  double seconds(IndexCoding coding) const;
  /// Whether a sum of that density is better sparse, its values of `value_bytes` on the wire: where a coding was named
  /// or shall be the smallest, by bytes; else by what both forms take on the wire, in the codec and in kernels.
  bool is_sparse(double density, double value_bytes, std::size_t index_width) const;
  /// The same for kernels: up to which share of its range a sum stays sparse.
  LayoutRule layout_rule(double value_bytes, std::size_t index_width) const;

 private:
  enum class Rule { named, smallest, automatic };
  double price(IndexCoding coding, double bits) const;
  double dense_price(double value_bytes) const;
  double sparse_price(IndexCoding coding, double density, double value_bytes, std::size_t index_width) const;
  double fill_of(IndexCoding coding, double value_bytes, std::size_t index_width) const;

  Rule rule_;
  IndexCoding named_ = IndexCoding::raw;
  Profile profile_;
};

}  // namespace tulle
