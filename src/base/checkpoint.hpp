// A training run on disk: a description in JSON and the arrays of its state, checked when read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/output_file.hpp"
#include "tulle/base/positional_reader.hpp"

#pragma GCC visibility push(default)
namespace tulle {

/// Whoever has the file puts it in its place. Throws system.
void write_checkpoint(OutputFile& file, const std::string& description,
                      const std::vector<std::span<std::byte>>& arrays);

class CheckpointFile {
 public:
  /// Nothing where there is no such file. Throws bad_input where it is damaged.
  static std::optional<CheckpointFile> open(const std::string& path);
  /// The same of what a reader has.
  static CheckpointFile read(const PositionalReader& reader);

  const std::string& description() const { return description_; }
  /// Of all arrays together.
  std::uint64_t array_bytes() const { return bytes_.size() - description_.size(); }
  /// Fills arrays of the sizes that were saved. Throws bad_input where the sizes differ.
  void restore(const std::vector<std::span<std::byte>>& arrays) const;

 private:
  std::string path_, description_;
  std::vector<std::byte> bytes_;
};

}  // namespace tulle
#pragma GCC visibility pop
