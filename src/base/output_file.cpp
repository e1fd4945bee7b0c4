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

std::string target_of(const std::string& path) {
  constexpr int kMostLinks = 40;  // as the kernel follows
  namespace fs = std::filesystem;
  fs::path target = path;
  std::error_code code;
  for (int links = 0; links < kMostLinks && fs::is_symlink(target, code); ++links) {
    const fs::path next = fs::read_symlink(target, code);
    if (code) break;
    target = next.is_absolute() ? next : target.parent_path() / next;
  }
  return target.string();
}

std::string path_before(const std::string& path) { return target_of(path) + ".before"; }
std::string path_of_part(const std::string& path) { return target_of(path) + ".part"; }

OutputFile::OutputFile(std::string path) : path_(target_of(path)), partial_path_(path_of_part(path_)) {
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

void OutputFile::flush() const {
  if (::fsync(file_) != 0) fail("cannot be written");
}

void OutputFile::commit() {
  flush();
  put_in_place();
}

void OutputFile::commit_as_next_generation() {
  flush();
  const bool is_first = ::access(path_.c_str(), F_OK) != 0;
  if (!is_first && std::rename(path_.c_str(), path_before(path_).c_str()) != 0) fail("cannot be put in its place");
  put_in_place();
}

void OutputFile::put_in_place() {
  if (std::rename(partial_path_.c_str(), path_.c_str()) != 0) fail("cannot be put in its place");
  ::close(file_);
  file_ = -1;
  // Names are on the disk once their directory is. Where it cannot be opened or synchronized, the file system decides.
  const std::string directory = std::filesystem::path(path_).parent_path().string();
  const int names = ::open(directory.empty() ? "." : directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (names < 0) return;
  ::fsync(names);
  ::close(names);
}

void OutputFile::fail(const char* what) const {
  throw Error(ErrorKind::system, fmt::format("{}: {}: {}", partial_path_, what, std::strerror(errno)));
}

}  // namespace tulle
