// A rank's part of a data set, in blocks that are read when they are needed.
//
// Threads: one thread at a time may use a Dataset together with its copies and what split() and divided() made of it,
// because they read through the same source. Rows that block() gave may be read by any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tulle/base/positional_reader.hpp"
#include "tulle/linear/rows.hpp"
#include "tulle/linear/text_format.hpp"

#pragma GCC visibility push(default)
namespace tulle::linear {

/// One of `count` parts that cover a file, e.g. a rank's.
struct Part {
  int index = 0;
  int count = 1;
};

struct DataOptions {
  Part part = {};
  TextOptions text = {};
  std::uint64_t memory_bytes = std::uint64_t{4} << 30;   ///< of rows kept; what does not fit is read in every pass
  std::function<void(std::uint64_t rows)> on_rows = {};  ///< called while text is read, when `rows` more are in memory
};

/// Copies share the rows that are in memory.
class Dataset {
 public:
  using Load = std::function<std::shared_ptr<const Rows>(std::size_t block)>;
  using ReadAhead = std::function<void(std::size_t block)>;

  /// `rows_of_block[b]` rows come from load(b), sooner where read_ahead(b) was called some time before. Blocks are kept
  /// as they are first read, while they fit `memory_bytes`.
  Dataset(std::uint64_t features, std::vector<std::uint32_t> rows_of_block, Load load, std::uint64_t memory_bytes,
          ReadAhead read_ahead = {});
  /// Rows that are in memory already.
  explicit Dataset(Rows rows);
  Dataset(std::uint64_t features, std::vector<std::shared_ptr<const Rows>> blocks);

  std::uint64_t rows() const { return rows_; }
  /// One more than the largest index that may occur.
  std::uint64_t features() const { return features_; }
  std::size_t blocks() const { return rows_of_block_.size(); }
  std::uint32_t rows_of_block(std::size_t block) const { return rows_of_block_[block]; }
  /// No block has to be read, now or later.
  bool is_in_memory() const;
  /// The most bytes that all kept blocks may take together.
  std::uint64_t memory_bytes() const { return memory_bytes_; }
  /// Reads the block unless it was kept. Throws bad_input where the file turns out to be damaged, system where it
  /// cannot be read. REQUIRES: block < blocks().
  std::shared_ptr<const Rows> block(std::size_t block);
  /// Begins to read a block that is wanted next, while the caller goes on. Does nothing where it is in memory; gives up
  /// a block that was begun before and not asked for.
  void read_ahead(std::size_t block);
  /// Calls function(rows) for each block in turn, and reads the next one meanwhile.
  template <class Function>
  void for_each_block(Function function) {
    for (std::size_t number = 0; number < blocks(); ++number) {
      const std::shared_ptr<const Rows> rows = block(number);
      if (number + 1 < blocks()) read_ahead(number + 1);
      function(*rows);
    }
  }
  /// Lines of text that were skipped.
  std::uint64_t bad_lines() const { return bad_lines_; }
  void set_bad_lines(std::uint64_t lines) { bad_lines_ = lines; }

  /// Two sets: about `share` of the rows, drawn by `seed`, and the others. O(rows); nothing is read yet. Each set reads
  /// all blocks of this one, keeps as much in memory, and copies its rows out of a block whenever that is asked for.
  std::pair<Dataset, Dataset> split(double share, std::uint64_t seed) const;
  /// One of `part.count` sets that divide the rows between them, in about equal shares. Costs what split() does.
  Dataset divided(Part part) const;

 private:
  std::uint64_t features_ = 0;
  std::uint64_t rows_ = 0;
  std::uint64_t bad_lines_ = 0;
  std::vector<std::uint32_t> rows_of_block_;
  Load load_;
  ReadAhead read_ahead_;
  std::uint64_t memory_bytes_ = 0, memory_left_ = 0;
  std::vector<std::shared_ptr<const Rows>> kept_;
};

/// Reads a part of a text file, plain or compressed, and hands over its rows piece by piece. Gives the number of bad
/// lines; without `skip_bad` the first throws bad_input naming file, line, column and reason.
std::uint64_t read_lines(const ReaderPtr& reader, Part part, const ParseLine& parse, bool skip_bad,
                         const std::function<void(Rows rows)>& take);

/// A part of a file in the binary format (docs/linear.md), or of text, plain or compressed. Text has to fit the memory.
/// Throws bad_input naming file, line and reason, or that text does not fit; system where the file cannot be read.
Dataset open_dataset(const ReaderPtr& reader, const DataOptions& options);

}  // namespace tulle::linear
#pragma GCC visibility pop
