// Files read and written by MPI-IO, for file systems that MPI knows better than the operating system does.
//
// Threads: every function calls MPI, so that it may be called from the threads that MPI's thread level allows: with
// MPI_THREAD_FUNNELED from the main thread alone, with MPI_THREAD_MULTIPLE from several at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#pragma GCC visibility push(default)
namespace tulle {

/// Each rank opens and reads on its own. REQUIRES: MPI is initialized, and not finalized while the file is open.
class MpiFile {
 public:
  /// Throws bad_input where it cannot be opened.
  explicit MpiFile(const std::string& path);
  ~MpiFile();

  std::uint64_t size() const;
  /// Fills `bytes` from `offset` on. Throws system naming the file; what `bytes` hold is then not defined.
  void read_at(std::uint64_t offset, std::span<std::byte> bytes) const;

  /// A read that MPI-IO goes on with while the program computes. `bytes` belong to it, and the file must live, until it
  /// ends; the destructor waits. Of more than 2^30 bytes the rest is read in finish().
  class Reading {
   public:
    /// Throws system naming the file.
    Reading(const MpiFile& file, std::uint64_t offset, std::span<std::byte> bytes);
    ~Reading();
    Reading(const Reading&) = delete;
    Reading& operator=(const Reading&) = delete;
    /// Returns when all bytes are there. Throws system naming the file. REQUIRES: it is called once.
    void finish();

   private:
    struct Request;
    const MpiFile& file_;
    std::uint64_t offset_;
    std::span<std::byte> bytes_;
    std::unique_ptr<Request> request_;
  };

 private:
  struct Handle;
  std::unique_ptr<Handle> handle_;
};

/// Writes a part of a file that is there, and returns when it is on the disk. Ranks may write parts that do not overlap
/// at the same time; each calls it on its own. Throws system naming the file. REQUIRES: MPI is initialized.
void write_mpi_file(const std::string& path, std::uint64_t offset, std::span<const std::byte> bytes);

}  // namespace tulle
#pragma GCC visibility pop
