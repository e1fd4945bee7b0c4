#include "cli/tune/plan_map.hpp"

#include <gtest/gtest.h>

namespace tulle::cli {
namespace {

PlanCell cell(int ranks, double density, const Algorithm& winner, double speed_up) {
  return {ranks, density, {&winner, 1}, {&registry()[4], speed_up}};
}

TEST(PlanMap, has_a_letter_and_a_speed_up_in_every_cell) {
  const double densities[] = {1e-4, 0.5};
  const PlanCell cells[] = {cell(2, 1e-4, registry()[0], 123.4), cell(2, 0.5, registry()[1], 1),
                            cell(16, 1e-4, registry()[0], 7.25), cell(16, 0.5, registry()[1], 1.5)};
  const std::string map = plan_map(cells, densities, MapStyle::plain);
  EXPECT_NE(map.find("     2    A 123     B 1 \n"), std::string::npos) << map;
  EXPECT_NE(map.find("    16    A 7.2   B 1.5 \n"), std::string::npos) << map;
  EXPECT_NE(map.find("  A  " + std::string(registry()[0].name)), std::string::npos) << map;
  EXPECT_EQ(map.find("  C  "), std::string::npos) << "only rows that win are explained";
  EXPECT_EQ(map.find('\033'), std::string::npos);
}

TEST(PlanMap, is_coloured_by_speed_up_on_a_terminal) {
  const double densities[] = {0.01, 0.02};
  const PlanCell cells[] = {cell(2, 0.01, registry()[0], 1), cell(2, 0.02, registry()[0], 1000)};
  const std::string map = plan_map(cells, densities, MapStyle::colored);
  EXPECT_NE(map.find("\033[48;5;240m"), std::string::npos);
  EXPECT_NE(map.find("\033[48;5;124m"), std::string::npos);
}

}  // namespace
}  // namespace tulle::cli
