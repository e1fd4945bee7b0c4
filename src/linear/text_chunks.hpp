// A text file, plain or compressed, in chunks of whole lines, of which each rank takes its part.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "tulle/base/positional_reader.hpp"
#include "tulle/linear/dataset.hpp"

namespace tulle::linear {

class TextChunks {
 public:
  virtual ~TextChunks() = default;
  /// Whole lines, or nothing at the end. Valid until the next call.
  virtual std::string_view next() = 0;
  /// The number of the line, from 1, at `offset` of the chunk that next() gave last. May read the file again.
  virtual std::uint64_t line_at(std::size_t offset) const = 0;
};

/// gzip, xz, zstd, bzip2 and lz4 are known by their first bytes. A plain file is cut by bytes, and a line belongs to
/// the part in which it begins; a compressed one is read whole by everyone, and chunks are dealt out in turn.
std::unique_ptr<TextChunks> open_text(ReaderPtr reader, Part part);

}  // namespace tulle::linear
