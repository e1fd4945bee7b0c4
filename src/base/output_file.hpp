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

/// The file that `path` leads to where it is a symbolic link, or `path` itself.
std::string target_of(const std::string& path);
/// Where the generation before the newest lies: beside the file, with .before at its end.
std::string path_before(const std::string& path);
/// Where a file lies until it is whole and has its place: beside it, with .part at its end.
std::string path_of_part(const std::string& path);

/// Writes beside `path` and takes its place in commit(); without that, what was there stays. A symbolic link stays, and
/// what it leads to is replaced. Throws system.
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
  /// What was written is on the disk, under its name until commit().
  void flush() const;
  void commit();
  /// The same, and what was there stays as path_before(). Whenever the process is killed, one of the two is there.
  void commit_as_next_generation();

 private:
  void put_in_place();
  [[noreturn]] void fail(const char* what) const;

  std::string path_, partial_path_;
  int file_ = -1;
  std::uint64_t position_ = 0;
};

}  // namespace tulle
#pragma GCC visibility pop
