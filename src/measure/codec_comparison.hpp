// Times codings in both directions beside a memcpy of the same values, after checking what they give.
//
// How it works. All *candidates* of a case, memcpy among them, take turns in each round, so that what disturbs the
// machine disturbs all. The first round is not timed: it touches the memory.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/progress.hpp"
#include "tulle/base/quartiles.hpp"
#include "tulle/codec/value_coding.hpp"

namespace tulle::measure {

/// One direction of one coding.
struct CodecRow {
  std::string name;
  std::string_view direction;
  double bits = 0;   ///< of a value or an index
  double limit = 0;  ///< entropy of an index; 0 for values
  bool verified = false;
  Quartiles seconds;
  double ratio = 0;  ///< time in units of memcpy's
};

struct CodecCase {
  std::string name;
  std::optional<double> density;  ///< of indices
  std::uint64_t items = 0;        ///< values or indices
  std::vector<CodecRow> rows;     ///< the first is memcpy
};

/// `values` are f32. A codec for values of one sign gets their magnitudes.
CodecCase compare_value_codecs(const std::string& name, const Buffer& values, std::span<const ValueCodec> codecs,
                               int repeats, Progress* progress = nullptr);

/// Every index coding, on `density` of `count` uniform indices, or of more where those would stay in a cache.
CodecCase compare_index_codecs(double density, std::uint64_t count, int repeats, Progress* progress = nullptr);

}  // namespace tulle::measure
