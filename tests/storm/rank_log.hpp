// What ranks of a storm tell the script that started them: a line of JSON for what happens, with the time.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>

#include "tulle/base/error.hpp"

namespace tulle::storm {

/// How a rank ends. The scripts know the same numbers.
inline constexpr int kStopped = 0, kExcluded = 3, kWrongSum = 4, kUnexpected = 5, kNotStarted = 6;

/// The clock that the scripts read, too.
inline double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Lines appear whole: a rank may be killed while it writes.
class Log {
 public:
  explicit Log(const std::string& path) : file_(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666)) {
    if (file_ < 0) std::exit(kUnexpected);
  }
  void write(nlohmann::json line) {
    line["at"] = now();
    const std::string text = line.dump() + "\n";
    if (::write(file_, text.data(), text.size()) != static_cast<ssize_t>(text.size())) std::exit(kUnexpected);
  }

 private:
  int file_;
};

inline nlohmann::json to_json(const Error& error) {
  nlohmann::json line = {{"kind", to_string(error.kind())}, {"what", error.what()}};
  if (error.peer()) line["peer"] = *error.peer();
  return line;
}

}  // namespace tulle::storm
