#include "base/output_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "tulle/base/error.hpp"

namespace tulle {

void require_writable(const std::string& path) {
  const auto refuse = [&](const std::string& why) { throw Error(ErrorKind::system, fmt::format("{}: {}", path, why)); };
  std::error_code error;
  const auto there = std::filesystem::status(path, error);
  if (std::filesystem::exists(there) && !std::filesystem::is_regular_file(there)) refuse("is not a regular file");
  const std::string directory = std::filesystem::path(path).parent_path().string();
  const std::string& named = directory.empty() ? "." : directory;
  if (::access(named.c_str(), W_OK) != 0) refuse(fmt::format("{}: {}", named, std::strerror(errno)));
}

OutputFile::OutputFile(std::string path) : path_(std::move(path)), partial_path_(path_ + ".part") {
  require_writable(path_);
  file_ = ::open(partial_path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (file_ < 0) fail("cannot be opened");
}

OutputFile::~OutputFile() {
  if (file_ < 0) return;
  ::close(file_);
  ::unlink(partial_path_.c_str());
}

void OutputFile::write(std::span<const std::byte> bytes) {
  write_at(position_, bytes);
  position_ += bytes.size();
}

void OutputFile::write_at(std::uint64_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::pwrite(file_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail("cannot be written");
    bytes = bytes.subspan(static_cast<std::size_t>(written));
    offset += static_cast<std::uint64_t>(written);
  }
}

void OutputFile::commit() {
  if (::fsync(file_) != 0) fail("cannot be written");
  ::close(file_);
  file_ = -1;
  if (std::rename(partial_path_.c_str(), path_.c_str()) != 0) fail("cannot be put in its place");
}

void OutputFile::fail(const char* what) const {
  throw Error(ErrorKind::system, fmt::format("{}: {}: {}", partial_path_, what, std::strerror(errno)));
}

}  // namespace tulle
