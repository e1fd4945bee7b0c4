#include "base/rank_files.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <optional>
#include <string_view>

namespace tulle {
namespace {

namespace fs = std::filesystem;

struct Name {
  int rank = 0, ranks = 0;
  std::string_view ending;  ///< such as .before
};

// Of the generations that are kept (generations.hpp); others are of who knows whom.
bool has_had_its_place(std::string_view ending) { return ending.empty() || ending == ".before"; }
bool is_ending(std::string_view text) { return has_had_its_place(text) || text == ".part"; }

// A number at the front, which is taken away.
std::optional<int> take_number(std::string_view& text) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc()) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return number;
}

std::optional<Name> parse(std::string_view name, std::string_view prefix) {
  constexpr std::string_view kOf = "-of-";
  if (!name.starts_with(prefix)) return std::nullopt;
  name.remove_prefix(prefix.size());
  const std::optional<int> rank = take_number(name);
  if (!rank || !name.starts_with(kOf)) return std::nullopt;
  name.remove_prefix(kOf.size());
  const std::optional<int> ranks = take_number(name);
  if (!ranks) return std::nullopt;
  return Name{*rank, *ranks, name};
}

template <class Use>
void for_each_file(const std::string& path, Use use) {
  const fs::path whole(path);
  const std::string prefix = whole.filename().string() + ".";
  const fs::path directory = whole.has_parent_path() ? whole.parent_path() : fs::path(".");
  std::error_code code;
  for (const auto& entry : fs::directory_iterator(directory, code)) {
    const std::string text = entry.path().filename().string();
    if (const std::optional<Name> name = parse(text, prefix)) use(*name, entry.path());
  }
}

}  // namespace

std::string path_of_rank(const std::string& path, int rank, int ranks) {
  return fmt::format("{}.{}-of-{}", path, rank, ranks);
}

std::vector<int> sets_on_disk(const std::string& path) {
  std::vector<int> sets;
  for_each_file(path, [&](const Name& name, const fs::path&) {
    if (name.rank == 0 && has_had_its_place(name.ending)) sets.push_back(name.ranks);
  });
  std::ranges::sort(sets);
  sets.erase(std::unique(sets.begin(), sets.end()), sets.end());
  return sets;
}

void remove_other_sets(const std::string& path, int ranks) {
  std::vector<fs::path> others;
  for_each_file(path, [&](const Name& name, const fs::path& file) {
    if (name.ranks != ranks && is_ending(name.ending)) others.push_back(file);
  });
  std::error_code code;
  for (const fs::path& file : others) fs::remove(file, code);
}

}  // namespace tulle
