// A file that appears whole or not at all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#pragma GCC visibility push(default)
namespace tulle {

/// Throws system unless a file can be made at `path`: what is there must be a file, and its directory be writable.
void require_writable(const std::string& path);

/// Writes beside `path` and takes its place in commit(); without that, what was there stays. Throws system.
class OutputFile {
 public:
  explicit OutputFile(std::string path);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  void write(std::span<const std::byte> bytes);
  template <class T>
  void write_array(std::span<const T> values) {
    write(std::as_bytes(values));
  }
  /// Replaces bytes that were written before.
  void write_at(std::uint64_t offset, std::span<const std::byte> bytes);
  std::uint64_t position() const { return position_; }
  void commit();

 private:
  [[noreturn]] void fail(const char* what) const;

  std::string path_, partial_path_;
  int file_ = -1;
  std::uint64_t position_ = 0;
};

}  // namespace tulle
#pragma GCC visibility pop
