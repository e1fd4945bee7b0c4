#include "tulle/base/positional_reader.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <future>

#include "tulle/base/error.hpp"

namespace tulle {
namespace {

struct FileHandle {
  explicit FileHandle(const std::string& path) : number(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {}
  ~FileHandle() {
    if (number >= 0) ::close(number);
  }
  FileHandle(const FileHandle&) = delete;
  FileHandle& operator=(const FileHandle&) = delete;

  const int number;
};

class FileReader final : public PositionalReader {
 public:
  explicit FileReader(const std::string& path) : path_(path), file_(path) {
    struct stat status {};
    if (file_.number < 0 || ::fstat(file_.number, &status) != 0) fail(ErrorKind::bad_input, std::strerror(errno));
    if (!S_ISREG(status.st_mode)) fail(ErrorKind::bad_input, "not a regular file");
    size_ = static_cast<std::uint64_t>(status.st_size);
  }

  const std::string& path() const override { return path_; }
  std::uint64_t size() const override { return size_; }

  void read_at(std::uint64_t offset, std::span<std::byte> bytes) const override {
    while (!bytes.empty()) {
      const ssize_t got = ::pread(file_.number, bytes.data(), bytes.size(), static_cast<off_t>(offset));
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) fail(ErrorKind::system, got == 0 ? "became shorter while it was read" : std::strerror(errno));
      bytes = bytes.subspan(static_cast<std::size_t>(got));
      offset += static_cast<std::uint64_t>(got);
    }
  }

 private:
  [[noreturn]] void fail(ErrorKind kind, std::string_view reason) const {
    throw Error(kind, fmt::format("{}: {}", path_, reason));
  }

  std::string path_;
  FileHandle file_;
  std::uint64_t size_ = 0;
};

class MemoryReader final : public PositionalReader {
 public:
  MemoryReader(std::string path, std::string contents) : path_(std::move(path)), contents_(std::move(contents)) {}
  const std::string& path() const override { return path_; }
  std::uint64_t size() const override { return contents_.size(); }
  void read_at(std::uint64_t offset, std::span<std::byte> bytes) const override {
    if (!bytes.empty()) std::memcpy(bytes.data(), contents_.data() + offset, bytes.size());
  }

 private:
  std::string path_;
  std::string contents_;
};

class ThreadedRead final : public PendingRead {
 public:
  ThreadedRead(const PositionalReader& reader, std::uint64_t offset, std::span<std::byte> bytes)
      : done_(std::async(std::launch::async, [=, &reader] { reader.read_at(offset, bytes); })) {}
  void finish() override { done_.get(); }

 private:
  std::future<void> done_;  // its destructor waits
};

}  // namespace

std::unique_ptr<PendingRead> PositionalReader::start_read_at(std::uint64_t offset, std::span<std::byte> bytes) const {
  return std::make_unique<ThreadedRead>(*this, offset, bytes);
}

ReaderPtr open_file(const std::string& path) { return std::make_shared<FileReader>(path); }
ReaderPtr open_memory(std::string path, std::string contents) {
  return std::make_shared<MemoryReader>(std::move(path), std::move(contents));
}

}  // namespace tulle
