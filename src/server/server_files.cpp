#include "server/server_files.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <span>
#include <utility>

#include "base/output_file.hpp"
#include "base/rank_files.hpp"
#include "gradient/checkpoint_files.hpp"
#include "tulle/base/error.hpp"

namespace tulle::server {
namespace {

namespace fs = std::filesystem;

// One file, with the steps of its parameters.
struct Found {
  std::string path;
  gradient::SavedState state;
  std::uint64_t least = 0, most = 0;

  RunStep what() const { return {.run = state.run, .step = state.steps}; }
  /// All its parameters are.
  bool is_of(const RunStep& wanted) const {
    return state.run == wanted.run && least == wanted.step && most == wanted.step;
  }
};

// What one server has, the newest first, and all that lies there.
struct FilesOfServer {
  std::vector<Found> files;
  Generations on_disk;
};

// What a set goes on from.
struct Chosen {
  int servers = 0;
  std::vector<Found> files;  ///< by server
  std::uint64_t least = 0;
  std::string note;
};

Found read_one(const std::string& path) {
  Found found{.path = path, .state = gradient::decode_state(gradient::states_in(path).front())};
  found.least = ~std::uint64_t{0};
  for (const gradient::SavedParameter& parameter : found.state.parameters) {
    found.least = std::min(found.least, parameter.step);
    found.most = std::max(found.most, parameter.step);
  }
  return found;
}

// Throws where there are files, and none can be used.
FilesOfServer files_of(const std::string& file) {
  FilesOfServer found;
  found.on_disk = read_generations(file, [&](const std::string& path) {
    found.files.push_back(read_one(path));
    return found.files.back().what();
  });
  if (!found.files.empty() || found.on_disk.files.empty()) return found;
  throw Error(ErrorKind::bad_input, found.on_disk.files.front().problem);
}

// Why the files before that one are left out.
std::string why_not_newest(const FilesOfServer& server, const Found& chosen) {
  for (const Generation& file : server.on_disk.files) {
    if (file.path == chosen.path) break;
    if (!file.what) return file.problem;
    return fmt::format("{} is of {}, of which not all servers have a file", file.path, to_string(*file.what));
  }
  return "";
}

// The newest step of one run of which every server has a file with all its parameters.
std::optional<RunStep> common_step(std::span<const FilesOfServer> set) {
  for (const Found& candidate : set.front().files) {
    const auto has_it = [&](const Found& found) { return found.is_of(candidate.what()); };
    const auto all_have = [&](const FilesOfServer& server) { return std::ranges::any_of(server.files, has_it); };
    if (std::ranges::all_of(set, all_have)) return candidate.what();
  }
  return std::nullopt;
}

// Whether the newest files were written while the job went on, and not when it was stopped.
bool is_of_a_running_job(std::span<const FilesOfServer> set, std::uint64_t every) {
  return every > 0 && std::ranges::all_of(set, [&](const FilesOfServer& files) {
           const Found& newest = files.files.front();
           return newest.least == newest.most && newest.most % every == 0;
         });
}

// Steps may differ, and workers refuse that where they must not; runs never.
void require_one_run(const std::string& path, std::span<const Found> files) {
  const std::uint64_t run = files.front().state.run;
  const auto other = std::ranges::find_if(files, [&](const Found& file) { return file.state.run != run; });
  if (other == files.end()) return;
  throw Error(
      ErrorKind::bad_input,
      fmt::format("{}: servers' files are of several runs: {} of {}, {} of {}. Remove them to start from the "
                  "beginning",
                  path, files.front().path, to_string(files.front().what()), other->path, to_string(other->what())));
}

Chosen chosen_of(const std::string& path, std::vector<FilesOfServer> set, std::uint64_t every, bool may_differ) {
  std::optional<RunStep> step = common_step(set);
  if (may_differ && !is_of_a_running_job(set, every)) step.reset();
  Chosen chosen{.servers = static_cast<int>(set.size()), .files = {}, .least = ~std::uint64_t{0}, .note = {}};
  for (FilesOfServer& server : set) {
    auto file = server.files.begin();
    if (step) file = std::ranges::find_if(server.files, [&](const Found& found) { return found.is_of(*step); });
    if (chosen.note.empty()) chosen.note = why_not_newest(server, *file);
    chosen.least = std::min(chosen.least, file->least);
    chosen.files.push_back(std::move(*file));
  }
  require_one_run(path, chosen.files);
  return chosen;
}

// Nothing where a server has no file.
std::optional<std::vector<FilesOfServer>> set_of(const std::string& path, int servers) {
  std::vector<FilesOfServer> set;
  for (int server = 0; server < servers; ++server) {
    set.push_back(files_of(path_of_rank(path, server, servers)));
    if (set.back().files.empty()) return std::nullopt;
  }
  return set;
}

// Where servers do not share a directory each sees its own files alone.
Chosen own_file_of(const std::string& path, int server, int servers) {
  FilesOfServer found = files_of(path_of_rank(path, server, servers));
  if (found.files.empty()) {
    const bool has_others = !sets_on_disk(path).empty();
    throw Error(ErrorKind::bad_input, has_others ? fmt::format("{} is not there, as files of other servers are",
                                                               path_of_rank(path, server, servers))
                                                 : fmt::format("{}: there is no such checkpoint", path));
  }
  Chosen chosen{.servers = 0, .files = {}, .least = 0, .note = why_not_newest(found, found.files.front())};
  chosen.files.push_back(std::move(found.files.front()));
  return chosen;
}

}  // namespace

void ServerFiles::write(const std::string& path, gradient::SavedState state) {
  state.run = run_;
  const Buffer bytes = gradient::encode_state(state);
  const std::string mine = path_of_rank(path, server_, servers_);
  writer_.prepare(mine);
  OutputFile file(mine);
  file.write(bytes.bytes());
  writer_.commit(file, {.run = run_, .step = state.steps});
  for (int server = 0; server < servers_; ++server) {
    if (!fs::exists(path_of_rank(path, server, servers_))) return;
  }
  remove_other_sets(path, servers_);
}

bool ServerFiles::is_there(const std::string& path) const {
  const std::string mine = path_of_rank(path, server_, servers_);
  return !sets_on_disk(path).empty() || fs::exists(mine) || fs::exists(path_before(mine));
}

ServerFiles::Read ServerFiles::read(const std::string& path, std::uint64_t every) {
  std::vector<int> sets = sets_on_disk(path);
  std::erase(sets, servers_);
  sets.insert(sets.begin(), servers_);  // of sets of the same step it is this one
  std::optional<Chosen> best;
  for (const int servers : sets) {
    std::optional<std::vector<FilesOfServer>> set = set_of(path, servers);
    if (!set) continue;
    Chosen chosen = chosen_of(path, std::move(*set), every, may_differ_);
    if (!best || chosen.least > best->least) best = std::move(chosen);
  }
  Read read;
  if (!best) best = own_file_of(path, server_, servers_);
  read.note = std::move(best->note);
  if (best->servers != 0 && best->servers != servers_) {
    for (Found& file : best->files) read.states.push_back(std::move(file.state));
    return read;
  }
  Found& own = best->files[best->servers == 0 ? 0 : static_cast<std::size_t>(server_)];
  const std::string mine = path_of_rank(path, server_, servers_);
  Generations on_disk{.path = mine, .files = {{.path = own.path, .what = own.what(), .problem = {}}}};
  writer_.goes_on_from(std::move(on_disk), own.what());
  read.states.push_back(std::move(own.state));
  return read;
}

}  // namespace tulle::server
