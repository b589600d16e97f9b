// Table tests: each row is a separate test, which can be run by its name.
//
//   struct LengthRow {
//     const char* name;
//     const char* spec = "";
//     int length = 0;
//   };
//   class LengthTable : public TableTest<LengthRow> {};
//
//   TEST_P(LengthTable, IsRead) { EXPECT_EQ(Read(row().spec), row().length); }
//
//   const LengthRow kLengthRows[] = {
//       {.name = "AFixedLengthIsItself", .spec = "fixed:7", .length = 7},
//       {.name = "AnEmptySpecIsNothing"},
//   };
//   SLUICE_TABLE(LengthTable, kLengthRows);
//
// `--gtest_filter='*LengthTable*/AFixedLengthIsItself'` runs the first row. GoogleTest ends the
// program if two rows of a table have the same name or a name has other characters than letters
// and digits.
#pragma once

#include <gtest/gtest.h>

#include <ostream>
#include <string>
#include <vector>

namespace sluice {

// A row as GoogleTest's parameter. It prints as the row's name, not as its bytes.
template <typename Row>
struct NamedRow {
  Row row;

  friend void PrintTo(const NamedRow& named, std::ostream* out) { *out << named.row.name; }
};

// The fixture of a table, derived from `Fixture`. `Row` must have a member `name`.
template <typename Row, typename Fixture = ::testing::Test>
class TableTest : public Fixture, public ::testing::WithParamInterface<NamedRow<Row>> {
 public:
  template <typename Rows>
  static auto AllOf(const Rows& rows) {
    std::vector<NamedRow<Row>> named;
    for (const Row& each : rows) named.push_back({each});
    return ::testing::ValuesIn(named);
  }

  static std::string NameOfRow(const ::testing::TestParamInfo<NamedRow<Row>>& info) {
    return info.param.row.name;
  }

 protected:
  static const Row& row() { return TableTest::GetParam().row; }
};

}  // namespace sluice

// Runs the tests of `suite` once for each of `rows`, an array or vector. The expression `rows` is
// evaluated when GoogleTest is initialised, so it may call functions.
#define SLUICE_TABLE(suite, rows) \
  INSTANTIATE_TEST_SUITE_P(, suite, suite::AllOf(rows), suite::NameOfRow)
