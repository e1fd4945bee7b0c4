// A file that was saved twice, put back to where a save that is killed leaves it.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "base/temporary_directory.hpp"

namespace tulle::testing {

/// Where the second save was killed: while it wrote, before its first rename, between its renames, or after them.
enum class Killed { writing, written, moved, placed };

/// Of two ranks that write their files first and put them in their places when both are there.
inline std::vector<std::pair<Killed, Killed>> two_ranks_killed() {
  using enum Killed;
  std::vector<std::pair<Killed, Killed>> all = {{writing, writing}, {writing, written}, {written, writing}};
  for (const Killed first : {written, moved, placed}) {
    for (const Killed second : {written, moved, placed}) all.emplace_back(first, second);
  }
  return all;
}

class TornFile {
 public:
  /// The newest is at `path` and what was there at `path`.before.
  explicit TornFile(std::string path)
      : path_(std::move(path)), old_(contents_of(path_ + ".before")), newest_(contents_of(path_)) {}

  /// As if there had been no first save.
  void forget_old() { old_.clear(); }

  void leave(Killed killed) const {
    for (const char* const ending : {"", ".before", ".part"}) std::filesystem::remove(path_ + ending);
    const auto put = [&](const std::string& ending, const std::string& text) {
      if (!text.empty()) std::ofstream(path_ + ending, std::ios::binary) << text;
    };
    const bool is_old_moved = killed == Killed::moved || killed == Killed::placed;
    put(is_old_moved ? ".before" : "", old_);
    if (killed == Killed::placed) return put("", newest_);
    put(".part", killed == Killed::writing ? newest_.substr(0, newest_.size() / 2) : newest_);
  }

  /// A bit of the newest is not what it was.
  void damage() const {
    std::string text = contents_of(path_);
    text[text.size() / 2] = static_cast<char>(text[text.size() / 2] ^ 1);
    std::ofstream(path_, std::ios::binary) << text;
  }

 private:
  std::string path_, old_, newest_;
};

}  // namespace tulle::testing
