// The seam between formats and files: bytes at a position. Plain files are here; MPI-IO is beside the MPI transport.
//
// Threads: the readers of open_file() and open_memory() may be used by several threads at once. Another class whose
// read_at() may not be must override start_read_at(). A PendingRead is used by one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#pragma GCC visibility push(default)
namespace tulle {

/// A read under way. Its destructor waits, and drops an error.
class PendingRead {
 public:
  virtual ~PendingRead() = default;
  /// Returns when the bytes are there. Throws what read_at() would. REQUIRES: it is called once.
  virtual void finish() = 0;
};

/// A file that stays open and keeps its size.
class PositionalReader {
 public:
  virtual ~PositionalReader() = default;
  virtual const std::string& path() const = 0;
  virtual std::uint64_t size() const = 0;
  /// Fills `bytes` from `offset` on. REQUIRES: offset + bytes.size() <= size(). Throws system naming the file; what
  /// `bytes` hold is then not defined.
  virtual void read_at(std::uint64_t offset, std::span<std::byte> bytes) const = 0;
  /// The same without waiting, by default on a thread of its own. `bytes` belong to the read, and the reader must live,
  /// until it has finished. Throws std::system_error where no thread can be started.
  virtual std::unique_ptr<PendingRead> start_read_at(std::uint64_t offset, std::span<std::byte> bytes) const;
};

using ReaderPtr = std::shared_ptr<const PositionalReader>;
/// How files are opened: by open_file(), or by something else with the same contract.
using OpenReader = std::function<ReaderPtr(const std::string& path)>;

/// Opens a plain file. Throws bad_input where it cannot be opened or is not a regular file.
ReaderPtr open_file(const std::string& path);
/// Bytes in memory under a name, for tests.
ReaderPtr open_memory(std::string path, std::string contents);

}  // namespace tulle
#pragma GCC visibility pop
