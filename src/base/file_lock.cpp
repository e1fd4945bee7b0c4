#include "base/file_lock.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string_view>

#include "base/output_file.hpp"
#include "base/printable.hpp"
#include "tulle/base/error.hpp"

namespace tulle {
namespace {

std::string name_of_this_process() {
  char host[256] = "";
  ::gethostname(host, sizeof host - 1);
  return fmt::format("process {} on {}", ::getpid(), host);
}

std::string holder_of(int file) {
  char text[320] = "";
  const ssize_t bytes = ::pread(file, text, sizeof text, 0);
  return printable(std::string_view(text, bytes > 0 ? static_cast<std::size_t>(bytes) : 0));
}

// Whoever held it may have removed the file after it was opened here.
bool is_still_at(int file, const std::string& path) {
  struct stat opened {
  }, there{};
  return ::fstat(file, &opened) == 0 && ::stat(path.c_str(), &there) == 0 && opened.st_ino == there.st_ino &&
         opened.st_dev == there.st_dev;
}

}  // namespace

FileLock::FileLock(const std::string& path) : lock_path_(target_of(path) + ".lock") {
  do {
    if (file_ >= 0) ::close(file_);
    file_ = ::open(lock_path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (file_ < 0) return;  // whoever writes there will be told why
    if (::flock(file_, LOCK_EX | LOCK_NB) == 0) continue;
    if (errno != EWOULDBLOCK) return;  // no locks here
    const std::string holder = holder_of(file_);
    ::close(file_);
    throw Error(ErrorKind::bad_input,
                fmt::format("{}: another job writes this checkpoint{}{}; give each job one of its own, or wait for it",
                            path, holder.empty() ? "" : ": ", holder));
  } while (!is_still_at(file_, lock_path_));
  const std::string name = name_of_this_process();
  // Only for messages: a disk that is full is told by what is written next.
  if (::ftruncate(file_, 0) != 0 || ::pwrite(file_, name.data(), name.size(), 0) < 0) return;
}

FileLock::~FileLock() {
  if (file_ < 0) return;
  ::unlink(lock_path_.c_str());
  ::close(file_);
}

}  // namespace tulle
