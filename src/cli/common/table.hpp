// Columns of text, printed row by row.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tulle::cli {

enum class Align { left, right };

struct Column {
  std::string title;
  std::string unit;  ///< printed under the title where any column has one
  Align align = Align::right;
  std::size_t width = 0;
};

class Table {
 public:
  /// Lines of the header begin with `header_mark`, rows with as many spaces.
  explicit Table(std::vector<Column> columns, std::string header_mark = "");

  /// Widens the columns to what `rows` need. A wider cell in a later row pushes that row to the right.
  void fit(std::span<const std::vector<std::string>> rows);

  /// Each line with its end. REQUIRES: as many cells as columns.
  std::string header() const;
  std::string row(std::span<const std::string> cells) const;

 private:
  std::string line(std::string_view mark, std::span<const std::string> cells) const;

  std::vector<Column> columns_;
  std::string header_mark_;
};

}  // namespace tulle::cli
