#include "client/table.h"

#include <gtest/gtest.h>

namespace sluice::client {
namespace {

TEST(Table, AlignsColumnsAndNumbers) {
  Table table({"NAME", "COUNT", "NOTE"});
  table.AddRow({"a", "7", "x"});
  table.AddRow({"longer", "1234.5", ""});
  EXPECT_EQ(table.Render(),
            "NAME     COUNT  NOTE\n"
            "a            7  x\n"
            "longer  1234.5\n");
}

TEST(Table, AColumnWithATextIsAlignedToTheLeft) {
  Table table({"A", "B"});
  table.AddRow({"1", "22"});
  table.AddRow({"x", "3"});
  EXPECT_EQ(table.Render(), "A   B\n1  22\nx   3\n");
}

TEST(Table, ShowsHeadingsWithoutRows) { EXPECT_EQ(Table({"A", "B"}).Render(), "A  B\n"); }

TEST(Table, EscapesControlCharacters) {
  Table table({"A"});
  table.AddRow({"x\x1b[31m\ny"});
  EXPECT_EQ(table.Render(), "A\nx\\x1b[31m\\ny\n");
}

}  // namespace
}  // namespace sluice::client
