#include "cli/report/line_follower.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "tulle/base/error.hpp"

namespace tulle::cli {

LineFollower::LineFollower(std::optional<std::string> path) : path_(std::move(path)) {
  file_ = path_ ? ::open(path_->c_str(), O_RDONLY | O_CLOEXEC) : STDIN_FILENO;
  if (file_ < 0) throw Error(ErrorKind::system, fmt::format("cannot open '{}': {}", *path_, std::strerror(errno)));
}

LineFollower::~LineFollower() {
  if (path_) ::close(file_);
}

// poll() says at once that a file can be read, also at its end: there only time tells.
bool LineFollower::wait(double seconds) {
  pollfd descriptor{.fd = file_, .events = POLLIN};
  return ::poll(&descriptor, 1, static_cast<int>(seconds * 1000)) > 0;
}

void LineFollower::start_again_if_truncated() {
  struct stat status {};
  const off_t place = ::lseek(file_, 0, SEEK_CUR);
  if (place < 0 || ::fstat(file_, &status) != 0 || status.st_size >= place) return;
  ::lseek(file_, 0, SEEK_SET);
  partial_.clear();
}

std::vector<std::string> LineFollower::read(double seconds) {
  std::vector<std::string> lines;
  start_again_if_truncated();
  while (!is_over_ && wait(lines.empty() ? seconds : 0)) {
    char chunk[1 << 16];
    const ssize_t count = ::read(file_, chunk, sizeof chunk);
    if (count <= 0) {
      is_over_ = !path_ && errno != EINTR;
      if (path_ && lines.empty()) ::poll(nullptr, 0, static_cast<int>(seconds * 1000));
      break;
    }
    partial_.append(chunk, static_cast<std::size_t>(count));
    std::size_t begin = 0;
    for (std::size_t end; (end = partial_.find('\n', begin)) != std::string::npos; begin = end + 1) {
      lines.push_back(partial_.substr(begin, end - begin));
    }
    partial_.erase(0, begin);
  }
  return lines;
}

}  // namespace tulle::cli
