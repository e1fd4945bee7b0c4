// Measurements on disk: a file of JSON objects, one per line, that many runs append to.
#pragma once

#include <string>
#include <string_view>

namespace tulle {

class JsonLines {
 public:
  /// Opens `path` to append, and creates it where it is missing. Throws system naming the file.
  explicit JsonLines(const std::string& path);
  ~JsonLines();
  JsonLines(JsonLines&& other) noexcept;
  JsonLines(const JsonLines&) = delete;
  JsonLines& operator=(const JsonLines&) = delete;

  /// Appends one object and the end of the line in a single write, so that lines of several writers do not mix.
  /// REQUIRES: `object` is JSON without a line break. Throws system naming the file.
  void append(std::string_view object);

 private:
  std::string path_;
  int file_ = -1;
};

}  // namespace tulle
