// Lines of a file that another process is still writing, or of standard input.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace tulle::cli {

class LineFollower {
 public:
  /// Opens `path`; unset: standard input. Throws system naming a file that cannot be opened.
  explicit LineFollower(std::optional<std::string> path);
  ~LineFollower();
  LineFollower(const LineFollower&) = delete;
  LineFollower& operator=(const LineFollower&) = delete;

  /// Whole lines that are there by now; waits at most `seconds` for the first. A line without its end waits for it. A
  /// file that became shorter is read anew.
  std::vector<std::string> read(double seconds);
  /// True when nothing more can come: the writers of a pipe are gone. A file can always grow.
  bool is_over() const { return is_over_; }

 private:
  bool wait(double seconds);
  void start_again_if_truncated();

  std::optional<std::string> path_;
  int file_ = -1;
  std::string partial_;
  bool is_over_ = false;
};

}  // namespace tulle::cli
