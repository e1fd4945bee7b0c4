#include "base/json_lines.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cassert>
#include <cerrno>
#include <cstring>
#include <utility>

#include "tulle/base/error.hpp"

namespace tulle {
namespace {

[[noreturn]] void throw_system(const std::string& what, const std::string& path) {
  throw Error(ErrorKind::system, "cannot " + what + " '" + path + "': " + std::strerror(errno));
}

}  // namespace

JsonLines::JsonLines(const std::string& path)
    : path_(path), file_(::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666)) {
  if (file_ < 0) throw_system("open", path_);
}

JsonLines::~JsonLines() {
  if (file_ >= 0) ::close(file_);
}

JsonLines::JsonLines(JsonLines&& other) noexcept
    : path_(std::move(other.path_)), file_(std::exchange(other.file_, -1)) {}

void JsonLines::append(std::string_view object) {
  assert(object.find('\n') == std::string_view::npos);
  const std::string line = std::string(object) + '\n';
  const ssize_t written = ::write(file_, line.data(), line.size());
  if (written >= 0 && static_cast<std::size_t>(written) < line.size()) errno = ENOSPC;
  if (written < 0 || static_cast<std::size_t>(written) < line.size()) throw_system("append to", path_);
}

}  // namespace tulle
