// A compression context: what one direction of one tensor keeps between steps, and how it codes.
//
// How it works. A change is added to the *error buffer*, what the recipe selects of that is coded into a frame, and
// what the receiver will decode is subtracted again: the rest is what the next frame will correct (3LC, Figure 2).
// Tensors that the recipe sends whole lose nothing and have an error buffer only while it holds pushes that were given
// back.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "tulle/comm/profile.hpp"
#include "tulle/server/options.hpp"
#include "tulle/stream/stream.hpp"

namespace tulle::server {

/// What a context codes by, beside its recipe.
struct ContextSettings {
  std::uint64_t seed = 0;
  std::uint64_t rank = 0;      ///< of who codes: dice differ
  std::uint64_t position = 0;  ///< of the tensor: dice differ
  int threads = 1;
  bool holds = false;  ///< changes are held back for local steps, so that there is an error buffer in any case
  Profile profile = {};
};

struct CodedChange {
  Segments frame;
  AnyStream decoded;  ///< what the receiver gets of it
};

class CompressionContext {
 public:
  CompressionContext(const Recipe& recipe, const Parameter& parameter, const ContextSettings& settings);

  /// A frame of the change and of what is owed. `sequence` is part of the frame. REQUIRES: finite values.
  CodedChange compress(std::span<const float> change, std::uint64_t sequence);
  /// Adds to what is owed, and sends nothing.
  void hold(std::span<const float> change);
  /// What was sent has not been accepted, and is owed again. Does nothing where there is no error buffer.
  void give_back(const AnyStream& decoded);

  /// How many frames were coded.
  std::uint64_t encodings() const { return encodings_; }
  bool keeps_error() const { return keeps_error_; }
  /// What is owed; empty: nothing.
  std::span<const float> error() const { return error_; }
  void restore(std::span<const float> error) { error_.assign(error.begin(), error.end()); }

 private:
  CodedChange coded(const AnyStream& stream, std::uint64_t sequence, const ValueCodec& codec);
  CodedChange whole(std::span<const float> change, std::uint64_t sequence);
  CodedChange from_error(std::uint64_t sequence);
  SelectOptions select_options(std::uint64_t step) const;
  bool selects() const { return recipe_.selector != "none"; }

  void require_finite(bool is_finite) const;

  std::string name_;
  Recipe recipe_;
  std::uint64_t size_;
  ContextSettings settings_;
  bool is_whole_, keeps_error_;
  std::uint64_t encodings_ = 0;
  PoolVector<float> error_;
};

/// Decodes and validates a frame. Throws bad_message naming the field.
AnyStream decode_change(const Segments& frame, std::uint64_t size, std::uint64_t sequence, int threads);

}  // namespace tulle::server
