#include "cli/common/table.hpp"

#include <gtest/gtest.h>

namespace tulle::cli {
namespace {

TEST(Table, ColumnsLineUpUnderTheirTitles) {
  const Table table({{"name", "", Align::left, 6}, {"time", "(us)", Align::right, 6}}, "# ");
  EXPECT_EQ(table.header(),
            "# name      time\n"
            "#           (us)\n");
  EXPECT_EQ(table.row(std::vector<std::string>{"ring", "12.5"}), "  ring      12.5\n");
}

TEST(Table, ColumnsFitTheirRows) {
  Table table({{"a", "", Align::left}, {"b", "", Align::left}});
  const std::vector<std::vector<std::string>> rows = {{"long cell", "x"}, {"c", "y"}};
  table.fit(rows);
  EXPECT_EQ(table.header(), "a          b\n");
  EXPECT_EQ(table.row(rows[0]), "long cell  x\n");
  EXPECT_EQ(table.row(rows[1]), "c          y\n");
}

TEST(Table, ACellThatIsTooWideIsNotCut) {
  const Table table({{"a", "", Align::right, 3}, {"b", "", Align::left}});
  EXPECT_EQ(table.row(std::vector<std::string>{"12345", "x"}), "12345  x\n");
}

}  // namespace
}  // namespace tulle::cli
