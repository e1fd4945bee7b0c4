// The binary format: rows in checksummed blocks with a table of them, so that every rank reads its part alone.
// docs/linear.md gives every byte.
//
// Threads: a CsrWriter is used by one thread at a time. The other functions keep no state and may be called from any
// thread that the reader may be used from. They throw system where the file cannot be read or written.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tulle/base/positional_reader.hpp"
#include "tulle/linear/dataset.hpp"
#include "tulle/linear/rows.hpp"

#pragma GCC visibility push(default)
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

/// Writes rows in the order of add(). The file appears in finish(); without that, what was there stays. Holds one block
/// and the table in memory.
class CsrWriter {
 public:
  /// A block ends with the row that makes it `block_bytes` large. Small blocks are slow to read; of large ones there
  /// are few to deal out, and a rank holds one whole.
  explicit CsrWriter(const std::string& path, std::uint64_t block_bytes = std::uint64_t{1} << 20);
  ~CsrWriter();

  /// REQUIRES: indices of the row increase and are below kMaxFeatures; values and label are finite.
  void add(RowView row, float label);
  void add(const Rows& rows);
  /// Ends the file. `features` is for data that has more than its largest index shows; throws bad_input where it is set
  /// and the data has more. REQUIRES: nothing is called after it.
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
/// One block, checked, in a few passes over its bytes. Throws bad_input saying what is damaged.
/// REQUIRES: read_csr_info(reader) gave `info`; block < info.blocks.size().
Rows read_csr_block(const PositionalReader& reader, const CsrInfo& info, std::size_t block);
/// Opens a part. Rows are dealt out evenly: a block on the border is read by both neighbours, and each keeps its rows.
/// Reads header and table now, and blocks when they are asked for.
Dataset open_csr_part(const ReaderPtr& reader, Part part, std::uint64_t memory_bytes);

}  // namespace tulle::linear
#pragma GCC visibility pop
