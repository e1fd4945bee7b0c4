#include "base/checkpoint.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cstring>

#include "base/little_endian.hpp"
#include "tulle/base/crc32c.hpp"
#include "tulle/base/error.hpp"

namespace tulle {
namespace {

constexpr std::string_view kMagic = "TULLECKP";
constexpr std::size_t kHeaderBytes = 24;

[[noreturn]] void refuse(const std::string& path, std::string_view reason) {
  throw Error(ErrorKind::bad_input, fmt::format("{}: {}", path, reason));
}

}  // namespace

void write_checkpoint(OutputFile& file, const std::string& description,
                      const std::vector<std::span<std::byte>>& arrays) {
  std::uint32_t checksum = crc32c(std::as_bytes(std::span(description)));
  for (const auto& array : arrays) checksum = crc32c(array, checksum);
  std::array<std::byte, kHeaderBytes> header{};
  std::memcpy(header.data(), kMagic.data(), kMagic.size());
  store_at<std::uint64_t>(header, 8, description.size());
  store_at<std::uint32_t>(header, 16, checksum);
  file.write(header);
  file.write(std::as_bytes(std::span(description)));
  for (const auto& array : arrays) file.write(array);
}

std::optional<CheckpointFile> CheckpointFile::open(const std::string& path) {
  if (::access(path.c_str(), F_OK) != 0) return std::nullopt;
  return read(*open_file(path));
}

CheckpointFile CheckpointFile::read(const PositionalReader& reader) {
  const std::string& path = reader.path();
  CheckpointFile file;
  file.path_ = path;
  std::array<std::byte, kHeaderBytes> header{};
  if (reader.size() < kHeaderBytes) refuse(path, "not a checkpoint");
  reader.read_at(0, header);
  if (std::memcmp(header.data(), kMagic.data(), kMagic.size()) != 0) refuse(path, "not a checkpoint");
  file.bytes_.resize(reader.size() - kHeaderBytes);
  reader.read_at(kHeaderBytes, file.bytes_);
  const auto description_bytes = load_at<std::uint64_t>(header, 8);
  if (description_bytes > file.bytes_.size() || crc32c(file.bytes_) != load_at<std::uint32_t>(header, 16)) {
    refuse(path, "the checkpoint is damaged");
  }
  file.description_.assign(reinterpret_cast<const char*>(file.bytes_.data()), description_bytes);
  return file;
}

void CheckpointFile::restore(const std::vector<std::span<std::byte>>& arrays) const {
  std::size_t at = description_.size(), wanted = at;
  for (const auto& array : arrays) wanted += array.size();
  if (wanted != bytes_.size()) refuse(path_, "the checkpoint is of another model or other data");
  for (const auto& array : arrays) {
    std::copy_n(bytes_.begin() + static_cast<std::ptrdiff_t>(at), array.size(), array.begin());
    at += array.size();
  }
}

}  // namespace tulle
