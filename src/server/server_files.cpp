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
  gradient::SavedState state;
  std::uint64_t least = 0, most = 0;
  bool is_before = false;

  bool is_of(std::uint64_t step) const { return least == step && most == step; }
};

// What one server has: at most two, the newest first.
using FilesOfServer = std::vector<Found>;

// What a set goes on from.
struct Chosen {
  int servers = 0;
  std::vector<Found> files;  ///< by server
  std::uint64_t least = 0;
};

std::string before(const std::string& file) { return file + ".before"; }

Found read_one(const std::string& file) {
  Found found{.state = gradient::decode_state(gradient::read_states(file, 0, 1).front())};
  found.least = ~std::uint64_t{0};
  for (const gradient::SavedParameter& parameter : found.state.parameters) {
    found.least = std::min(found.least, parameter.step);
    found.most = std::max(found.most, parameter.step);
  }
  return found;
}

FilesOfServer files_of(const std::string& file) {
  FilesOfServer files;
  if (fs::exists(file)) files.push_back(read_one(file));
  if (!fs::exists(before(file))) return files;
  try {
    files.push_back(read_one(before(file)));
    files.back().is_before = true;
  } catch (const Error&) {
    if (files.empty()) throw;
  }
  return files;
}

// The newest step of which every server has a file with all its parameters.
std::optional<std::uint64_t> common_step(std::span<const FilesOfServer> set) {
  for (const Found& candidate : set.front()) {
    const auto has_it = [&](const Found& found) { return found.is_of(candidate.most); };
    const auto all_have = [&](const FilesOfServer& files) { return std::ranges::any_of(files, has_it); };
    if (std::ranges::all_of(set, all_have)) return candidate.most;
  }
  return std::nullopt;
}

// Whether the newest files were written while the job went on, and not when it was stopped.
bool is_of_a_running_job(std::span<const FilesOfServer> set, std::uint64_t every) {
  return every > 0 && std::ranges::all_of(set, [&](const FilesOfServer& files) {
           return files.front().is_of(files.front().most) && files.front().most % every == 0;
         });
}

Chosen chosen_of(std::vector<FilesOfServer> set, std::uint64_t every, bool may_differ) {
  std::optional<std::uint64_t> step = common_step(set);
  if (may_differ && !is_of_a_running_job(set, every)) step.reset();
  Chosen chosen{.servers = static_cast<int>(set.size()), .files = {}, .least = ~std::uint64_t{0}};
  for (FilesOfServer& files : set) {
    auto file = files.begin();
    if (step) file = std::ranges::find_if(files, [&](const Found& found) { return found.is_of(*step); });
    chosen.least = std::min(chosen.least, file->least);
    chosen.files.push_back(std::move(*file));
  }
  return chosen;
}

// Nothing where a server has no file.
std::optional<std::vector<FilesOfServer>> set_of(const std::string& path, int servers) {
  std::vector<FilesOfServer> set;
  for (int server = 0; server < servers; ++server) {
    set.push_back(files_of(path_of_rank(path, server, servers)));
    if (set.back().empty()) return std::nullopt;
  }
  return set;
}

// Where servers do not share a directory each sees its own files alone.
Found own_file_of(const std::string& path, int server, int servers) {
  FilesOfServer files = files_of(path_of_rank(path, server, servers));
  if (!files.empty()) return std::move(files.front());
  const bool has_others = !sets_on_disk(path).empty();
  throw Error(ErrorKind::bad_input, has_others ? fmt::format("{} is not there, as files of other servers are",
                                                             path_of_rank(path, server, servers))
                                               : fmt::format("{}: there is no such checkpoint", path));
}

}  // namespace

void ServerFiles::write(const std::string& path, const gradient::SavedState& state) {
  const Buffer bytes = gradient::encode_state(state);
  const std::string mine = path_of_rank(path, server_, servers_);
  OutputFile file(mine);
  file.write(bytes.bytes());
  std::error_code code;
  if (step_on_disk_ && *step_on_disk_ != state.steps) fs::rename(mine, before(mine), code);
  if (!step_on_disk_ && !goes_on_from_before_) fs::remove(before(mine), code);  // of another run
  file.commit();
  step_on_disk_ = state.steps;
  for (int server = 0; server < servers_; ++server) {
    if (!fs::exists(path_of_rank(path, server, servers_))) return;
  }
  remove_other_sets(path, servers_);
}

bool ServerFiles::is_there(const std::string& path) const {
  const std::string mine = path_of_rank(path, server_, servers_);
  return !sets_on_disk(path).empty() || fs::exists(mine) || fs::exists(before(mine));
}

std::vector<gradient::SavedState> ServerFiles::read(const std::string& path, std::uint64_t every) {
  std::vector<int> sets = sets_on_disk(path);
  std::erase(sets, servers_);
  sets.insert(sets.begin(), servers_);  // of sets of the same step it is this one
  std::optional<Chosen> best;
  for (const int servers : sets) {
    std::optional<std::vector<FilesOfServer>> set = set_of(path, servers);
    if (!set) continue;
    Chosen chosen = chosen_of(std::move(*set), every, may_differ_);
    if (!best || chosen.least > best->least) best = std::move(chosen);
  }
  std::vector<gradient::SavedState> states;
  if (best && best->servers != servers_) {
    for (Found& file : best->files) states.push_back(std::move(file.state));
    return states;
  }
  Found own = best ? std::move(best->files[static_cast<std::size_t>(server_)]) : own_file_of(path, server_, servers_);
  goes_on_from_before_ = own.is_before;
  if (!own.is_before) step_on_disk_ = own.state.steps;
  states.push_back(std::move(own.state));
  return states;
}

}  // namespace tulle::server
