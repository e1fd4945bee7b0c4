// The binary format: rows in checksummed blocks with a table of them, so that every rank reads its part alone.
// docs/linear.md gives every byte.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tulle/linear/dataset.hpp"
#include "tulle/linear/positional_reader.hpp"
#include "tulle/linear/rows.hpp"

namespace tulle::linear {

struct CsrBlock {
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
  std::uint64_t rows = 0;
  std::uint64_t nonzeros = 0;
  std::uint32_t checksum = 0;  ///< CRC-32C of the block
  std::uint32_t is_binary = 0;
};

struct CsrInfo {
  std::uint64_t rows = 0;
  std::uint64_t features = 0;
  std::uint64_t nonzeros = 0;
  std::vector<CsrBlock> blocks;
};

/// Writes rows in the order of add(). The file appears in finish().
class CsrWriter {
 public:
  /// A block ends with the row that makes it `block_bytes` large. Too small: reads are slow. Too large: few blocks to
  /// deal out, and a rank holds one whole.
  explicit CsrWriter(const std::string& path, std::uint64_t block_bytes = std::uint64_t{1} << 20);
  ~CsrWriter();

  void add(RowView row, float label);
  void add(const Rows& rows);
  /// `features` where the data has more than the largest index shows; throws bad_input where it has fewer.
  CsrInfo finish(std::uint64_t features = 0);

 private:
  struct State;
  void end_block();
  std::unique_ptr<State> state_;
};

/// True where the file begins as the format does.
bool is_csr_file(const PositionalReader& reader);
/// Header and table. Throws bad_input saying what is damaged.
CsrInfo read_csr_info(const PositionalReader& reader);
/// One block, checked. Throws bad_input saying what is damaged.
Rows read_csr_block(const PositionalReader& reader, const CsrInfo& info, std::size_t block);
/// Rows are dealt out evenly: a block on the border is read by both neighbours, and each keeps its rows.
Dataset open_csr_part(const ReaderPtr& reader, Part part, std::uint64_t memory_bytes);

}  // namespace tulle::linear
