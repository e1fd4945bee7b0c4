// The seam between formats and files: bytes at a position. Plain files here; MPI-IO beside the MPI transport.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

namespace tulle::linear {

/// A read under way. Its destructor waits.
class PendingRead {
 public:
  virtual ~PendingRead() = default;
  /// Returns when the bytes are there. Throws what read_at() would.
  virtual void finish() = 0;
};

class PositionalReader {
 public:
  virtual ~PositionalReader() = default;
  virtual const std::string& path() const = 0;
  virtual std::uint64_t size() const = 0;
  /// Fills `bytes` from `offset` on. REQUIRES: offset + bytes.size() <= size(). Throws system naming the file.
  virtual void read_at(std::uint64_t offset, std::span<std::byte> bytes) const = 0;
  /// The same without waiting, by default on a thread of its own. `bytes` belong to it until it has finished.
  virtual std::unique_ptr<PendingRead> start_read_at(std::uint64_t offset, std::span<std::byte> bytes) const;
};

using ReaderPtr = std::shared_ptr<const PositionalReader>;
/// How files are opened: open_file, or something else by the same contract.
using OpenReader = std::function<ReaderPtr(const std::string& path)>;

/// A plain file. Throws bad_input where it cannot be opened.
ReaderPtr open_file(const std::string& path);
/// Bytes in memory under a name, for tests.
ReaderPtr open_memory(std::string path, std::string contents);

}  // namespace tulle::linear
