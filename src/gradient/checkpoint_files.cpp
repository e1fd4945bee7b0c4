#include "gradient/checkpoint_files.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <iterator>
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

constexpr int kOneForAll = 0;

RunStep run_step_of(const std::string& path) {
  const SavedState first = decode_state(states_in(path).front());
  return {.run = first.run, .step = first.steps};
}

// A file of all ranks that was cut off between two of its states is not whole (resharded() checks the others).
RunStep run_step_of_all(const std::string& path) {
  const std::vector<Buffer> states = states_in(path);
  const SavedState first = decode_state(states.front());
  if (states.size() != first.ranks) refuse(path, fmt::format("has {} states of {}", states.size(), first.ranks));
  return {.run = first.run, .step = first.steps};
}

// By rank; one where one file has all.
std::vector<Generations> generations_of(const std::string& path, int set) {
  if (set == kOneForAll) return {read_generations(path, run_step_of_all)};
  std::vector<Generations> files;
  for (int rank = 0; rank < set; ++rank) files.push_back(read_generations(path_of_rank(path, rank, set), run_step_of));
  return files;
}

std::optional<std::uint64_t> steps_of_set(const std::string& path, int set) {
  std::optional<std::uint64_t> steps;
  (void)failure_of([&] {
    if (const auto newest = newest_common(generations_of(path, set))) steps = newest->what.step;
  });
  return steps;
}

bool is_any_there(const std::string& path) {
  const auto is_file = [](const std::string& file) {
    std::error_code code;
    return std::filesystem::is_regular_file(file, code);
  };
  return is_file(path) || is_file(path_before(path)) || is_file(path_of_part(path));
}

// Several sets are there where a job was ended before it had removed those of the ranks that it had before: of those
// that are whole the one with the most steps counts. Gives its number of ranks, or kOneForAll.
int newest_set(const std::string& path, int rank, int ranks) {
  std::vector<int> sets = sets_on_disk(path);
  if (is_any_there(path)) sets.push_back(kOneForAll);
  // Directories that ranks do not share have this rank's file alone.
  if (sets.empty() && is_any_there(path_of_rank(path, rank, ranks))) return ranks;
  if (sets.empty()) refuse(path, "there is no such checkpoint");
  if (sets.size() == 1) return sets.front();
  std::optional<std::pair<std::uint64_t, int>> newest;
  bool is_clear = true;
  for (const int set : sets) {
    const std::optional<std::uint64_t> steps = steps_of_set(path, set);
    if (!steps || (newest && *steps < newest->first)) continue;
    is_clear = !newest || *steps > newest->first;
    newest = {*steps, set};
  }
  if (!newest) refuse(path, "there are files of several numbers of ranks, and of each some are missing");
  if (!is_clear) refuse(path, "there are checkpoints of several jobs with as many steps; leave one");
  return newest->second;
}

}  // namespace

std::vector<Buffer> states_in(const std::string& path) {
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

Task<> write_one_per_rank(Communicator& control, const std::string& path, const StateToWrite& state,
                          GenerationWriter& writer) {
  const std::string mine = path_of_rank(path, control.rank(), control.size());
  std::optional<OutputFile> file;
  const auto write = [&] {
    writer.prepare(mine);
    file.emplace(mine);
    file->write(state.bytes.bytes());
    file->flush();
  };
  // Nobody replaces an old file before all have written.
  const std::exception_ptr failure = failure_of(write);
  Request<void> written = ifail_together(control, failure);
  co_await written;
  const std::exception_ptr not_placed = failure_of([&] { writer.commit(*file, state.what); });
  Request<void> placed = ifail_together(control, not_placed);
  co_await placed;
  remove_other_sets(path, control.size());
}

Task<> write_one_for_all(Communicator& control, const std::string& path, const StateToWrite& state,
                         const WritePart& write_part, GenerationWriter& writer) {
  const std::uint64_t size = state.bytes.size();
  Request<std::vector<Buffer>> gathering = igather_bytes(control, Buffer::copy_of(std::as_bytes(std::span(&size, 1))));
  const std::vector<Buffer> sizes = co_await gathering;
  const std::uint64_t offset = offset_of(sizes, control.rank());
  std::optional<OutputFile> file;
  const auto make = [&] {
    if (control.rank() != 0) return;
    writer.prepare(path);
    file.emplace(path);
  };
  const std::exception_ptr not_made = failure_of(make);
  Request<void> made = ifail_together(control, not_made);
  co_await made;
  const auto write = [&] {
    const std::string partial_path = path_of_part(path);  // that OutputFile has made
    if (write_part) return write_part(partial_path, offset, state.bytes.bytes());
    write_plainly(partial_path, offset, state.bytes.bytes());
  };
  const std::exception_ptr not_written = failure_of(write);
  Request<void> written = ifail_together(control, not_written);
  co_await written;
  const auto place = [&] {
    if (control.rank() == 0) writer.commit(*file, state.what);
  };
  const std::exception_ptr not_placed = failure_of(place);
  Request<void> placed = ifail_together(control, not_placed);
  co_await placed;
}

Task<ReadStates> read_states(Communicator& control, const std::string& path) {
  const int rank = control.rank(), ranks = control.size();
  ReadStates read;
  int set = kOneForAll;
  std::vector<Generations> files;
  // Of a set of as many ranks as there are now each reads its own, which the others may not see.
  const auto look = [&] {
    set = newest_set(path, rank, ranks);
    files = set == ranks ? std::vector{read_generations(path_of_rank(path, rank, ranks), run_step_of)}
                         : generations_of(path, set);
  };
  const std::exception_ptr nothing_there = failure_of(look);
  Request<void> looked = ifail_together(control, nothing_there);
  co_await looked;
  const double sides[] = {static_cast<double>(set), -static_cast<double>(set)};
  Request<std::vector<double>> comparing = icombine(control, sides, Op::max());
  const std::vector<double> largest = co_await comparing;
  if (largest[0] != -largest[1]) refuse(path, "ranks see files of different numbers of ranks");
  std::vector<Generations> of_all = files;
  if (set == ranks) {
    const std::string mine = encode(files.front());
    Request<std::vector<Buffer>> gathering = igather_bytes(control, Buffer::copy_of(std::as_bytes(std::span(mine))));
    const std::vector<Buffer> gathered = co_await gathering;
    of_all.clear();
    for (const Buffer& bytes : gathered) {
      of_all.push_back(decode_generations({reinterpret_cast<const char*>(bytes.bytes().data()), bytes.size()}));
    }
  }
  const auto choose = [&] {
    const std::optional<CommonGeneration> chosen = newest_common(of_all);
    if (!chosen) refuse(path, "there is no such checkpoint");
    read.what = chosen->what;
    read.note = chosen->note;
    for (const Generations& file : files)
      std::ranges::move(states_in(file.find(read.what)->path), std::back_inserter(read.states));
    if (set == ranks || (set == kOneForAll && rank == 0)) read.on_disk = files.front();
  };
  const std::exception_ptr unreadable = failure_of(choose);
  Request<void> chose = ifail_together(control, unreadable);
  co_await chose;
  co_return read;
}

}  // namespace tulle::gradient
