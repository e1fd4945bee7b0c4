// Compressed files, unpacked through the seam of PositionalReader: gzip, xz, zstd, bzip2 and lz4.
//
// All of it is in this header, so that only the layers which include it link LibArchive; the core does without.
#pragma once

#include <archive.h>
#include <archive_entry.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <string_view>

#include "tulle/base/buffer.hpp"
#include "tulle/base/error.hpp"
#include "tulle/base/positional_reader.hpp"

namespace tulle {

/// True where the first bytes are those of a compressed file.
inline bool is_compressed(const PositionalReader& reader) {
  constexpr std::array<std::string_view, 5> kMagics = {"\x1f\x8b",
                                                       "\xfd"
                                                       "7zXZ",
                                                       "\x28\xb5\x2f\xfd", "BZh", "\x04\x22\x4d\x18"};
  std::array<char, 6> start{};
  const std::size_t bytes = std::min<std::uint64_t>(start.size(), reader.size());
  reader.read_at(0, std::as_writable_bytes(std::span(start)).first(bytes));
  const std::string_view text(start.data(), bytes);
  return std::any_of(kMagics.begin(), kMagics.end(), [&](std::string_view magic) { return text.starts_with(magic); });
}

/// What libarchive unpacks, from the beginning to the end. Throws bad_input naming the file where it cannot be
/// unpacked.
class Unpacker {
 public:
  explicit Unpacker(ReaderPtr reader) : reader_(std::move(reader)), archive_(archive_read_new()), input_(kInputBytes) {
    archive_read_support_filter_all(archive_.get());
    archive_read_support_format_raw(archive_.get());
    archive_entry* entry = nullptr;
    require(archive_read_open(archive_.get(), this, nullptr, read_more, nullptr));
    require(archive_read_next_header(archive_.get(), &entry));
  }

  /// At most `count` bytes; 0 at the end.
  std::size_t read(char* bytes, std::size_t count) {
    const la_ssize_t got = archive_read_data(archive_.get(), bytes, count);
    if (got < 0) require(static_cast<int>(got));
    return static_cast<std::size_t>(got);
  }

 private:
  // Large enough that calls do not count.
  static constexpr std::size_t kInputBytes = std::size_t{1} << 20;

  static la_ssize_t read_more(archive* handle, void* client, const void** block) {
    auto& self = *static_cast<Unpacker*>(client);
    const std::uint64_t bytes = std::min<std::uint64_t>(self.input_.size(), self.reader_->size() - self.position_);
    try {
      self.reader_->read_at(self.position_, std::as_writable_bytes(std::span(self.input_)).first(bytes));
    } catch (const std::exception& error) {  // C code is between here and who catches
      archive_set_error(handle, ARCHIVE_FATAL, "%s", error.what());
      return -1;
    }
    self.position_ += bytes;
    *block = self.input_.data();
    return static_cast<la_ssize_t>(bytes);
  }

  void require(int code) const {
    if (code == ARCHIVE_OK || code == ARCHIVE_WARN) return;
    const char* const reason = archive_error_string(archive_.get());
    throw Error(ErrorKind::bad_input, fmt::format("{}: cannot be unpacked: {}", reader_->path(),
                                                  reason != nullptr ? reason : "it ends too soon"));
  }

  struct Free {
    void operator()(archive* handle) const { archive_read_free(handle); }
  };
  ReaderPtr reader_;
  std::unique_ptr<archive, Free> archive_;
  std::uint64_t position_ = 0;
  PoolVector<char> input_;
};

/// All bytes of a file, unpacked where it is compressed. Throws what opening, reading and unpacking throw.
inline std::string read_unpacked(const std::string& path) {
  const ReaderPtr reader = open_file(path);
  std::string contents;
  if (!is_compressed(*reader)) {
    contents.resize(reader->size());
    reader->read_at(0, std::as_writable_bytes(std::span(contents)));
    return contents;
  }
  Unpacker unpacker(reader);
  constexpr std::size_t kPiece = std::size_t{1} << 20;
  for (std::size_t had = 0;;) {
    contents.resize(had + kPiece);
    const std::size_t got = unpacker.read(contents.data() + had, kPiece);
    had += got;
    if (got == 0) {
      contents.resize(had);
      return contents;
    }
  }
}

}  // namespace tulle
