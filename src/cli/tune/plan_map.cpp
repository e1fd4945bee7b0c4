#include "cli/tune/plan_map.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace tulle::cli {
namespace {

constexpr int kCellWidth = 8;

// Letters in the order of the registry, so that a row keeps its letter from map to map.
char letter_of(const Algorithm& row) { return static_cast<char>('A' + (algorithm_number(row) - 1) % 26); }

std::string speed_up_text(double speed_up) {
  return speed_up < 99.5 ? fmt::format("{:.2g}", std::max(speed_up, 1.0)) : fmt::format("{:.0f}", speed_up);
}

// Background colours of the 256 that terminals know, from grey for no gain over green to red from 100 times on.
int shade_of(double speed_up) {
  constexpr int kShades[] = {240, 238, 22, 28, 64, 100, 136, 130, 124};
  const double decades = std::clamp(std::log10(std::max(speed_up, 1.0)), 0.0, 2.0);
  return kShades[static_cast<std::size_t>(decades / 2 * (std::size(kShades) - 1))];
}

std::string cell_text(const PlanCell& cell, MapStyle style) {
  const std::optional<double> speed_up = cell.speed_up();
  std::string text = cell.winner.row == nullptr ? "-" : std::string(1, letter_of(*cell.winner.row));
  if (speed_up) text += fmt::format(" {}", speed_up_text(*speed_up));
  text = fmt::format("{:>{}}", text, kCellWidth - 1);
  if (style == MapStyle::plain) return text + " ";
  return fmt::format("\033[48;5;{}m\033[97m{} \033[0m", shade_of(speed_up.value_or(1)), text);
}

std::string legend(std::span<const PlanCell> cells) {
  std::vector<const Algorithm*> rows;
  for (const PlanCell& cell : cells) {
    const bool is_new = std::ranges::find(rows, cell.winner.row) == rows.end();
    if (cell.winner.row != nullptr && is_new) rows.push_back(cell.winner.row);
  }
  std::ranges::sort(rows);  // as they stand in the registry
  std::string text;
  for (const Algorithm* row : rows) text += fmt::format("  {}  {}: {}\n", letter_of(*row), row->name, row->summary);
  return text;
}

}  // namespace

std::string plan_map(std::span<const PlanCell> cells, std::span<const double> densities, MapStyle style) {
  std::string text = fmt::format("{:>6}  ", "ranks");
  for (const double density : densities) text += fmt::format("{:>{}} ", fmt::format("{:.2g}", density), kCellWidth - 1);
  for (std::size_t i = 0; i < cells.size(); ++i) {
    if (i % densities.size() == 0) text += fmt::format("\n{:>6}  ", cells[i].ranks);
    text += cell_text(cells[i], style);
  }
  return text +
         "\n\nColumns are densities. A cell is the row that wins, and how many times sooner it is than the best dense "
         "row, where one competes:\n" +
         legend(cells);
}

}  // namespace tulle::cli
