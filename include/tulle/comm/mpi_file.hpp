// A file read by MPI-IO, for file systems that MPI knows better than the operating system does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace tulle {

/// Each rank opens and reads on its own. REQUIRES: MPI is initialized, and not finalized while the file is open.
class MpiFile {
 public:
  /// Throws bad_input where it cannot be opened.
  explicit MpiFile(const std::string& path);
  ~MpiFile();

  std::uint64_t size() const;
  /// Fills `bytes` from `offset` on. Throws system naming the file.
  void read_at(std::uint64_t offset, std::span<std::byte> bytes) const;

  /// A read that MPI-IO goes on with while the program computes. `bytes` belong to it until finish() or its end.
  class Reading {
   public:
    Reading(const MpiFile& file, std::uint64_t offset, std::span<std::byte> bytes);
    ~Reading();
    Reading(const Reading&) = delete;
    Reading& operator=(const Reading&) = delete;
    /// Returns when all bytes are there. Throws system naming the file.
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

}  // namespace tulle
