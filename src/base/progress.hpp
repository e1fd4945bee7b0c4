// One line that says how far a long job is: on a terminal only, and only once the job has taken a moment.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>

namespace tulle {

struct ProgressOptions {
  std::ostream* out = nullptr;            ///< null: standard error
  std::optional<bool> is_shown;           ///< unset: see progress_is_wanted()
  double delay_seconds = 0.5;             ///< jobs that are over by then show nothing
  double interval_seconds = 0.1;          ///< between two drawings
  std::size_t width = 0;                  ///< of the terminal; 0: COLUMNS, or 80
  std::function<double()> clock_seconds;  ///< unset: the steady clock
};

/// True where standard error is a terminal. The variable TULLE_PROGRESS decides instead where it is 0 or 1: under
/// mpirun standard error is a pipe even if a person looks at its other end.
bool progress_is_wanted();

/// "label [#####-----]  50 %  12 of 24  3 s left  what", at most `width` columns.
std::string progress_line(std::string_view label, std::uint64_t done, std::uint64_t total, double elapsed_seconds,
                          std::string_view what, std::size_t width);

class Progress {
 public:
  /// `total` steps of about the same length.
  Progress(std::string label, std::uint64_t total, ProgressOptions options = {});
  ~Progress() { clear(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// `steps` more are done, and `what` comes next.
  void advance(std::uint64_t steps, std::string_view what);
  /// Takes the line away, so that something else can be printed; the next advance() draws it again.
  void clear();

 private:
  std::string label_;
  std::uint64_t total_;
  ProgressOptions options_;
  std::uint64_t done_ = 0;
  double started_ = 0;
  double drawn_at_ = 0;
  bool is_drawn_ = false;
};

}  // namespace tulle
