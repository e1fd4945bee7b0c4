#include "gradient/checkpoint_files.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <optional>
#include <utility>

#include "base/output_file.hpp"
#include "base/rank_files.hpp"
#include "gradient/saved_state.hpp"
#include "tulle/base/error.hpp"
#include "tulle/base/positional_reader.hpp"
#include "tulle/comm/control.hpp"

namespace tulle::gradient {
namespace {

[[noreturn]] void refuse(const std::string& path, const std::string& why) {
  throw Error(ErrorKind::bad_input, fmt::format("{}: {}", path, why));
}

// A part of a file that another rank has made and will put in its place.
void write_plainly(const std::string& path, std::uint64_t offset, std::span<const std::byte> bytes) {
  const auto fail = [&](const char* what) {
    throw Error(ErrorKind::system, fmt::format("{}: {}: {}", path, what, std::strerror(errno)));
  };
  const int file = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
  if (file < 0) fail("cannot be opened");
  bool is_written = true;
  while (!bytes.empty() && is_written) {
    const ssize_t written = ::pwrite(file, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    is_written = written >= 0 || errno == EINTR;
    if (written < 0) continue;
    bytes = bytes.subspan(static_cast<std::size_t>(written));
    offset += static_cast<std::uint64_t>(written);
  }
  is_written = is_written && ::fsync(file) == 0;
  ::close(file);
  if (!is_written) fail("cannot be written");
}

std::uint64_t offset_of(std::span<const Buffer> sizes, int rank) {
  std::uint64_t offset = 0;
  for (int before = 0; before < rank; ++before) {
    offset += sizes[static_cast<std::size_t>(before)].as<std::uint64_t>().front();
  }
  return offset;
}

Buffer read_part(const PositionalReader& reader, std::uint64_t offset, std::uint64_t bytes) {
  Buffer buffer = Buffer::allocate(bytes);
  reader.read_at(offset, buffer.as_mutable<std::byte>());
  return buffer;
}

std::uint64_t bytes_of_state(const std::string& path, std::span<const std::byte> bytes) {
  try {
    return state_bytes(bytes);
  } catch (const Error& error) {
    refuse(path, error.what());
  }
}

// The states of a file, one after the other. The length of each is known once its front is read.
std::vector<Buffer> read_all(const std::string& path) {
  const ReaderPtr reader = open_file(path);
  const Buffer whole = read_part(*reader, 0, reader->size());
  std::vector<Buffer> states;
  for (std::uint64_t at = 0; at < whole.size();) {
    states.push_back(whole.slice(at, bytes_of_state(path, whole.bytes().subspan(at))));
    at += states.back().size();
  }
  if (states.empty()) refuse(path, "is empty");
  return states;
}

constexpr int kOneForAll = 0;

bool is_whole(const std::string& path, int ranks) {
  for (int rank = 0; rank < ranks; ++rank) {
    if (!std::filesystem::is_regular_file(path_of_rank(path, rank, ranks))) return false;
  }
  return true;
}

// Several sets are there where a job was ended before it had removed those of the ranks that it had before: of those
// that are whole the one with the most steps counts. Gives its number of ranks, or kOneForAll.
int newest_set(const std::string& path, std::vector<int> sets, bool is_one) {
  if (is_one) sets.push_back(kOneForAll);
  if (sets.size() == 1) return sets.front();
  std::optional<std::pair<std::uint64_t, int>> newest;
  bool is_clear = true;
  for (const int ranks : sets) {
    if (!is_whole(path, ranks)) continue;
    const std::string first = ranks == kOneForAll ? path : path_of_rank(path, 0, ranks);
    const std::uint64_t steps = decode_state(read_all(first).front()).steps;
    if (newest && steps < newest->first) continue;
    is_clear = !newest || steps > newest->first;
    newest = {steps, ranks};
  }
  if (!newest) refuse(path, "there are files of several numbers of ranks, and of each some are missing");
  if (!is_clear) refuse(path, "there are checkpoints of several jobs with as many steps; leave one");
  return newest->second;
}

}  // namespace

Task<> write_one_per_rank(Communicator& control, const std::string& path, const Buffer& state) {
  std::optional<OutputFile> file;
  const auto write = [&] {
    file.emplace(path_of_rank(path, control.rank(), control.size()));
    file->write(state.bytes());
  };
  // Nobody replaces an old file before all have written.
  const std::exception_ptr failure = failure_of(write);
  Request<void> written = ifail_together(control, failure);
  co_await written;
  const std::exception_ptr not_placed = failure_of([&] { file->commit(); });
  Request<void> placed = ifail_together(control, not_placed);
  co_await placed;
  remove_other_sets(path, control.size());
}

Task<> write_one_for_all(Communicator& control, const std::string& path, const Buffer& state,
                         const WritePart& write_part) {
  const std::uint64_t size = state.size();
  Request<std::vector<Buffer>> gathering = igather_bytes(control, Buffer::copy_of(std::as_bytes(std::span(&size, 1))));
  const std::vector<Buffer> sizes = co_await gathering;
  const std::uint64_t offset = offset_of(sizes, control.rank());
  std::optional<OutputFile> file;
  const auto make = [&] {
    if (control.rank() == 0) file.emplace(path);
  };
  const std::exception_ptr not_made = failure_of(make);
  Request<void> made = ifail_together(control, not_made);
  co_await made;
  const auto write = [&] {
    const std::string partial_path = path + ".part";  // that OutputFile has made
    if (write_part) return write_part(partial_path, offset, state.bytes());
    write_plainly(partial_path, offset, state.bytes());
  };
  const std::exception_ptr not_written = failure_of(write);
  Request<void> written = ifail_together(control, not_written);
  co_await written;
  const auto place = [&] {
    if (control.rank() == 0) file->commit();
  };
  const std::exception_ptr not_placed = failure_of(place);
  Request<void> placed = ifail_together(control, not_placed);
  co_await placed;
}

std::vector<Buffer> read_states(const std::string& path, int rank, int ranks) {
  const std::vector<int> sets = sets_on_disk(path);
  const bool is_one = std::filesystem::is_regular_file(path);
  if (!is_one && sets.empty()) {
    // Directories that ranks do not share have this rank's file alone.
    const std::string own = path_of_rank(path, rank, ranks);
    if (std::filesystem::is_regular_file(own)) return read_all(own);
    refuse(path, "there is no such checkpoint");
  }
  const int set = newest_set(path, sets, is_one);
  if (set == kOneForAll) return read_all(path);
  if (set == ranks) return read_all(path_of_rank(path, rank, ranks));
  std::vector<Buffer> states;
  for (int old = 0; old < set; ++old) {
    for (Buffer& state : read_all(path_of_rank(path, old, set))) states.push_back(std::move(state));
  }
  return states;
}

}  // namespace tulle::gradient
