// Which index coding a frame gets: the one asked for, the smallest, or the one that saves more on the wire than it
// costs.
#pragma once

#include <optional>
#include <string_view>

#include "tulle/codec/index_coding.hpp"
#include "tulle/comm/profile.hpp"
#include "tulle/stream/reduce.hpp"

namespace tulle {

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
  /// Where sums become dense: where the coded sparse form takes as long on the wire and in the codec as the dense one.
  LayoutRule layout_rule(double value_bytes) const;

 private:
  enum class Rule { named, smallest, automatic };
  double price(IndexCoding coding, double bits) const;

  Rule rule_;
  IndexCoding named_ = IndexCoding::raw;
  Profile profile_;
};

}  // namespace tulle
