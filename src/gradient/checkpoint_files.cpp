#include "gradient/checkpoint_files.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <optional>

#include "base/output_file.hpp"
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

std::optional<int> number_of(std::string_view text) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

// Of the files PATH.0-of-RANKS, the numbers of ranks.
std::vector<int> jobs_at(const std::string& path) {
  const std::filesystem::path given(path);
  const std::string prefix = given.filename().string() + ".0-of-";
  const std::filesystem::path directory = given.parent_path().empty() ? "." : given.parent_path();
  std::vector<int> jobs;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(directory, error)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(prefix)) continue;
    if (const auto ranks = number_of(std::string_view(name).substr(prefix.size()))) jobs.push_back(*ranks);
  }
  return jobs;
}

constexpr int kOneForAll = 0;

// A job that went on with another number of ranks has left the files of both: those with the most steps count. Gives
// the number of ranks, or kOneForAll.
int newest_job(const std::string& path, std::vector<int> jobs, bool is_one) {
  if (is_one) jobs.push_back(kOneForAll);
  if (jobs.size() == 1) return jobs.front();
  int newest = 0;
  std::optional<std::uint64_t> most;
  bool is_clear = true;
  for (const int ranks : jobs) {
    const std::string first = ranks == kOneForAll ? path : path_of_rank(path, 0, ranks);
    const std::uint64_t steps = decode_state(read_all(first).front()).steps;
    is_clear = !most || steps != *most;
    if (most && steps <= *most) continue;
    most = steps;
    newest = ranks;
  }
  if (!is_clear) refuse(path, "there are checkpoints of several jobs with as many steps; leave one");
  return newest;
}

}  // namespace

std::string path_of_rank(const std::string& path, int rank, int ranks) {
  return fmt::format("{}.{}-of-{}", path, rank, ranks);
}

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
  const std::vector<int> jobs = jobs_at(path);
  const bool is_one = std::filesystem::is_regular_file(path);
  if (!is_one && jobs.empty()) {
    // Directories that ranks do not share have this rank's file alone.
    const std::string own = path_of_rank(path, rank, ranks);
    if (std::filesystem::is_regular_file(own)) return read_all(own);
    refuse(path, "there is no such checkpoint");
  }
  const int job = newest_job(path, jobs, is_one);
  if (job == kOneForAll) return read_all(path);
  if (job == ranks) return read_all(path_of_rank(path, rank, ranks));
  std::vector<Buffer> states;
  for (int old = 0; old < job; ++old) {
    for (Buffer& state : read_all(path_of_rank(path, old, job))) states.push_back(std::move(state));
  }
  return states;
}

}  // namespace tulle::gradient
