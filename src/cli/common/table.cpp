#include "cli/common/table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>

namespace tulle::cli {

Table::Table(std::vector<Column> columns, std::string header_mark)
    : columns_(std::move(columns)), header_mark_(std::move(header_mark)) {
  for (Column& column : columns_) column.width = std::max({column.width, column.title.size(), column.unit.size()});
}

void Table::fit(std::span<const std::vector<std::string>> rows) {
  for (const std::vector<std::string>& row : rows) {
    for (std::size_t i = 0; i < columns_.size(); ++i) columns_[i].width = std::max(columns_[i].width, row[i].size());
  }
}

std::string Table::header() const {
  std::vector<std::string> titles, units;
  bool has_units = false;
  for (const Column& column : columns_) {
    titles.push_back(column.title);
    units.push_back(column.unit);
    has_units = has_units || !column.unit.empty();
  }
  return line(header_mark_, titles) + (has_units ? line(header_mark_, units) : "");
}

std::string Table::row(std::span<const std::string> cells) const {
  return line(std::string(header_mark_.size(), ' '), cells);
}

std::string Table::line(std::string_view mark, std::span<const std::string> cells) const {
  assert(cells.size() == columns_.size());
  std::string text(mark);
  for (std::size_t i = 0; i < cells.size(); ++i) {
    const Column& column = columns_[i];
    if (i > 0) text += "  ";
    text += column.align == Align::left ? fmt::format("{:<{}}", cells[i], column.width)
                                        : fmt::format("{:>{}}", cells[i], column.width);
  }
  text.erase(text.find_last_not_of(' ') + 1);
  return text + '\n';
}

}  // namespace tulle::cli
