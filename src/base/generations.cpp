#include "base/generations.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <random>
#include <utility>

#include "tulle/base/error.hpp"

namespace tulle {
namespace {

bool is_usable(const Generation& file) { return file.what.has_value(); }

std::string list_of(const Generations& rank) {
  std::string list;
  for (const Generation& file : rank.files) {
    if (is_usable(file)) list += fmt::format("{}{}", list.empty() ? "" : " and ", to_string(*file.what));
  }
  return list;
}

// Ranks have files, and none in common.
[[noreturn]] void refuse(std::span<const Generations> ranks) {
  for (const Generations& rank : ranks) {
    const bool is_spoilt = !rank.files.empty() && std::ranges::none_of(rank.files, is_usable);
    if (is_spoilt) throw Error(ErrorKind::bad_input, rank.files.front().problem);
  }
  std::string lists;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    if (ranks[rank].files.empty()) {
      throw Error(ErrorKind::bad_input, fmt::format("{} is not there: some ranks have no checkpoint. Put it back, or "
                                                    "remove the others to start from the beginning",
                                                    ranks[rank].path));
    }
    lists += fmt::format("{}rank {} has {}", lists.empty() ? "" : ", ", rank, list_of(ranks[rank]));
  }
  throw Error(ErrorKind::bad_input, fmt::format("{}: ranks have no checkpoint in common: {}. They are of several runs; "
                                                "remove them to start from the beginning",
                                                ranks.front().path, lists));
}

std::string why_not_newest(std::span<const Generations> ranks, const RunStep& chosen) {
  const auto is_chosen = [&](const Generation& file) { return file.what == chosen; };
  const auto left_out = [&](const Generations& rank) {
    return std::span(rank.files.begin(), std::ranges::find_if(rank.files, is_chosen));
  };
  for (const Generations& rank : ranks) {
    for (const Generation& file : left_out(rank)) {
      if (!is_usable(file)) return file.problem;
    }
  }
  for (const Generations& rank : ranks) {
    if (left_out(rank).empty()) continue;
    const Generation& newest = rank.files.front();
    return fmt::format("{} is of {}, of which not all ranks have a file", newest.path, to_string(*newest.what));
  }
  return "";
}

// So that it is the one before while the next is put in its place.
void make_newest(const Generations& mine, const RunStep& chosen) {
  const Generation* file = mine.find(chosen);
  if (file == nullptr) return;
  const std::string newest = target_of(mine.path);
  const auto rename = [](const std::string& from, const std::string& to) {
    if (std::rename(from.c_str(), to.c_str()) == 0) return;
    throw Error(ErrorKind::system, fmt::format("{}: cannot be renamed to {}: {}", from, to, std::strerror(errno)));
  };
  if (file->path == path_before(mine.path)) return rename(file->path, newest);
  if (file->path != path_of_part(mine.path)) return;
  if (std::filesystem::exists(newest)) rename(newest, path_before(mine.path));
  rename(file->path, newest);
}

}  // namespace

std::string to_string(const RunStep& what) {
  if (what.run == 0) return fmt::format("step {}", what.step);
  return fmt::format("step {} of run {:08x}", what.step, what.run);
}

std::uint64_t draw_run_number() {
  std::random_device device;
  std::uint32_t number = 0;
  while (number == 0) number = device();
  return number;
}

const Generation* Generations::find(const RunStep& what) const {
  const auto found = std::ranges::find_if(files, [&](const Generation& file) { return file.what == what; });
  return found == files.end() ? nullptr : &*found;
}

Generations read_generations(const std::string& path, const std::function<RunStep(const std::string&)>& read) {
  Generations generations{.path = path, .files = {}};
  const std::string waiting = path_of_part(path);
  for (const std::string& file : {waiting, path, path_before(path)}) {
    std::error_code code;
    if (!std::filesystem::exists(file, code)) continue;
    Generation generation{.path = file, .what = {}, .problem = {}, .is_waiting = file == waiting};
    try {
      generation.what = read(file);
    } catch (const Error& error) {
      if (generation.is_waiting) continue;  // it was being written
      generation.problem = error.what();
    }
    generations.files.push_back(std::move(generation));
  }
  return generations;
}

std::optional<CommonGeneration> newest_common(std::span<const Generations> ranks) {
  for (const Generation& candidate : ranks.front().files) {
    const auto has_it = [&](const Generations& rank) { return rank.find(*candidate.what) != nullptr; };
    if (!candidate.what || !std::ranges::all_of(ranks, has_it)) continue;
    return CommonGeneration{.what = *candidate.what, .note = why_not_newest(ranks, *candidate.what)};
  }
  // Of a first checkpoint that was not finished.
  const auto is_waiting = [](const Generation& file) { return file.is_waiting; };
  const auto all_wait = [&](const Generations& rank) { return std::ranges::all_of(rank.files, is_waiting); };
  if (std::ranges::all_of(ranks, all_wait)) return std::nullopt;
  refuse(ranks);
}

void GenerationWriter::goes_on_from(Generations on_disk, const RunStep& chosen) {
  on_disk_ = std::move(on_disk);
  chosen_ = chosen;
  saved_.reset();
}

void GenerationWriter::prepare(const std::string& path) {
  if (path_ != path) saved_.reset();
  path_ = path;
  if (!chosen_ || on_disk_.path != path) return;
  make_newest(on_disk_, *chosen_);
  chosen_.reset();
}

void GenerationWriter::commit(OutputFile& file, const RunStep& what) {
  saved_ == what ? file.commit() : file.commit_as_next_generation();
  saved_ = what;
}

std::string encode(const Generations& generations) {
  nlohmann::json files = nlohmann::json::array();
  for (const Generation& file : generations.files) {
    nlohmann::json json = {{"path", file.path}, {"problem", file.problem}, {"waits", file.is_waiting}};
    if (file.what) json.update({{"run", file.what->run}, {"step", file.what->step}});
    files.push_back(std::move(json));
  }
  const nlohmann::json json = {{"path", generations.path}, {"files", files}};
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

Generations decode_generations(std::string_view text) {
  const nlohmann::json json = nlohmann::json::parse(text);
  Generations generations{.path = json.at("path"), .files = {}};
  for (const nlohmann::json& file : json.at("files")) {
    generations.files.push_back(
        {.path = file.at("path"), .what = {}, .problem = file.at("problem"), .is_waiting = file.at("waits")});
    if (file.contains("run")) generations.files.back().what = RunStep{file.at("run"), file.at("step")};
  }
  return generations;
}

}  // namespace tulle
