// Checkpoints on disk in generations: the newest file, the one before it, and one that waits for its place.
//
// A job that is killed may leave ranks with files of different steps, and a disk may damage the newest. That is why two
// generations are kept (output_file.hpp), and why every file says which run wrote it and after how many steps: a job
// goes on from the newest of which all ranks have an intact file. Equal steps are not enough: another run, with another
// rate, has them too.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/output_file.hpp"

#pragma GCC visibility push(default)
namespace tulle {

struct RunStep {
  std::uint64_t run = 0;  ///< 0: of a tulle that did not number runs
  std::uint64_t step = 0;

  friend bool operator==(const RunStep&, const RunStep&) = default;
};
/// "step 20 of run 1a2b3c4d".
std::string to_string(const RunStep& what);

/// Another for every job, also where it goes on from an older job's files. One rank draws it for all.
std::uint64_t draw_run_number();

struct Generation {
  std::string path;
  std::optional<RunStep> what;  ///< nothing: it cannot be used
  std::string problem;          ///< why not
  bool is_waiting = false;      ///< for its place
};

/// What one rank has on disk.
struct Generations {
  std::string path;               ///< of the newest, also where it is not there
  std::vector<Generation> files;  ///< that are there, the newest first

  const Generation* find(const RunStep& what) const;
};

/// `read` gives what a file is of, and throws an Error where it cannot be used.
Generations read_generations(const std::string& path, const std::function<RunStep(const std::string&)>& read);

/// What all ranks go on from.
struct CommonGeneration {
  RunStep what;
  std::string note;  ///< why newer files are left out; empty: there are none
};

/// Nothing where no rank has a file in its place. Throws bad_input where ranks have files, and none in common.
std::optional<CommonGeneration> newest_common(std::span<const Generations> ranks);

/// Writes generations of one rank's: what a run goes on from and what it wrote before stay until the next is in its
/// place.
class GenerationWriter {
 public:
  void goes_on_from(Generations on_disk, const RunStep& chosen);
  /// Before an OutputFile is made at `path`. What the run goes on from becomes the newest there. Throws system.
  void prepare(const std::string& path);
  /// `what` written again takes the place of itself, and not of the one before. Throws system.
  void commit(OutputFile& file, const RunStep& what);

 private:
  Generations on_disk_;
  std::optional<RunStep> chosen_;  // of these
  std::string path_;
  std::optional<RunStep> saved_;  // the newest at the path
};

/// For ranks that do not see each other's files.
std::string encode(const Generations& generations);
/// REQUIRES: encode() made it.
Generations decode_generations(std::string_view text);

}  // namespace tulle
#pragma GCC visibility pop
