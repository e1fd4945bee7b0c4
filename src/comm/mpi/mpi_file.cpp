#include "tulle/comm/mpi_file.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "comm/mpi/mpi_error.hpp"
#include "tulle/base/error.hpp"

namespace tulle {
namespace {

// MPI's counts are ints.
constexpr std::size_t kMostBytes = std::size_t{1} << 30;

void require(const std::string& path, ErrorKind kind, std::string_view call, int code) {
  if (code != MPI_SUCCESS) throw Error(kind, fmt::format("{}: {}", path, describe_mpi_error(call, code)));
}

}  // namespace

struct MpiFile::Handle {
  std::string path;
  MPI_File file = MPI_FILE_NULL;
};

MpiFile::MpiFile(const std::string& path) : handle_(std::make_unique<Handle>(Handle{path})) {
  require_mpi_is_running();
  require(path, ErrorKind::bad_input, "MPI_File_open",
          MPI_File_open(MPI_COMM_SELF, path.c_str(), MPI_MODE_RDONLY, MPI_INFO_NULL, &handle_->file));
}

MpiFile::~MpiFile() {
  if (mpi_is_running()) MPI_File_close(&handle_->file);
}

std::uint64_t MpiFile::size() const {
  require_mpi_is_running();
  MPI_Offset bytes = 0;
  require(handle_->path, ErrorKind::system, "MPI_File_get_size", MPI_File_get_size(handle_->file, &bytes));
  return static_cast<std::uint64_t>(bytes);
}

void MpiFile::read_at(std::uint64_t offset, std::span<std::byte> bytes) const {
  require_mpi_is_running();
  while (!bytes.empty()) {
    const auto wanted = static_cast<int>(std::min(bytes.size(), kMostBytes));
    MPI_Status status;
    int got = 0;
    require(handle_->path, ErrorKind::system, "MPI_File_read_at",
            MPI_File_read_at(handle_->file, static_cast<MPI_Offset>(offset), bytes.data(), wanted, MPI_BYTE, &status));
    MPI_Get_count(&status, MPI_BYTE, &got);
    if (got <= 0) throw Error(ErrorKind::system, fmt::format("{}: became shorter while it was read", handle_->path));
    bytes = bytes.subspan(static_cast<std::size_t>(got));
    offset += static_cast<std::uint64_t>(got);
  }
}

struct MpiFile::Reading::Request {
  MPI_Request request = MPI_REQUEST_NULL;
};

MpiFile::Reading::Reading(const MpiFile& file, std::uint64_t offset, std::span<std::byte> bytes)
    : file_(file), offset_(offset), bytes_(bytes), request_(std::make_unique<Request>()) {
  require_mpi_is_running();
  const auto wanted = static_cast<int>(std::min(bytes.size(), kMostBytes));
  require(file_.handle_->path, ErrorKind::system, "MPI_File_iread_at",
          MPI_File_iread_at(file_.handle_->file, static_cast<MPI_Offset>(offset), bytes.data(), wanted, MPI_BYTE,
                            &request_->request));
}

MpiFile::Reading::~Reading() {
  if (mpi_is_running()) MPI_Wait(&request_->request, MPI_STATUS_IGNORE);
}

// What a short read left, and what is beyond MPI's counts, is read at once.
void MpiFile::Reading::finish() {
  require_mpi_is_running();
  MPI_Status status;
  int got = 0;
  require(file_.handle_->path, ErrorKind::system, "MPI_Wait", MPI_Wait(&request_->request, &status));
  MPI_Get_count(&status, MPI_BYTE, &got);
  const auto read = static_cast<std::size_t>(std::max(got, 0));
  if (read < bytes_.size()) file_.read_at(offset_ + read, bytes_.subspan(read));
}

void write_mpi_file(const std::string& path, std::uint64_t offset, std::span<const std::byte> bytes) {
  require_mpi_is_running();
  MPI_File file = MPI_FILE_NULL;
  require(path, ErrorKind::system, "MPI_File_open",
          MPI_File_open(MPI_COMM_SELF, path.c_str(), MPI_MODE_WRONLY, MPI_INFO_NULL, &file));
  int code = MPI_SUCCESS;
  while (!bytes.empty() && code == MPI_SUCCESS) {
    const std::span<const std::byte> piece = bytes.first(std::min(bytes.size(), kMostBytes));
    code = MPI_File_write_at(file, static_cast<MPI_Offset>(offset), piece.data(), static_cast<int>(piece.size()),
                             MPI_BYTE, MPI_STATUS_IGNORE);
    bytes = bytes.subspan(piece.size());
    offset += piece.size();
  }
  if (code == MPI_SUCCESS) code = MPI_File_sync(file);
  const int closed = MPI_File_close(&file);
  require(path, ErrorKind::system, "MPI_File_write_at", code);
  require(path, ErrorKind::system, "MPI_File_close", closed);
}

}  // namespace tulle
