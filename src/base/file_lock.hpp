// Two jobs that write one file destroy it: whoever writes PATH holds PATH.lock.
#pragma once

#include <string>

#pragma GCC visibility push(default)
namespace tulle {

/// Held until destruction or the end of the process, however it comes. Where the file system has no locks, or no
/// file can be made, nobody is kept out.
class FileLock {
 public:
  /// Throws bad_input naming who holds it.
  explicit FileLock(const std::string& path);
  ~FileLock();
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

 private:
  std::string lock_path_;
  int file_ = -1;
};

}  // namespace tulle
#pragma GCC visibility pop
