// Tables of tests whose rows can be run by name.
//
//   struct Case {
//     std::string name;  // a statement about the row, unique in its table
//     ...
//   };
//   class LadderTable : public ::testing::TestWithParam<Case> {};
//   TEST_P(LadderTable, ChangesAsTheRowSays) { ... GetParam() ... }
//   INSTANTIATE_TEST_SUITE_P(Ladder, LadderTable, ::testing::ValuesIn(kCases), RowName<Case>);
//
// The row "all that fits goes" is then run by --gtest_filter='*LadderTable*/AllThatFitsGoes'.
#pragma once

#include <cctype>
#include <string>

#include "gtest/gtest.h"

namespace sluice {

// Returns the row's name in CamelCase, without characters that a test's name may not have.
template <typename Case>
std::string RowName(const ::testing::TestParamInfo<Case>& row) {
  std::string name;
  bool begins_word = true;
  for (const char c : std::string(row.param.name)) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) {
      begins_word = c != '\'';
      continue;
    }
    name += begins_word ? static_cast<char>(std::toupper(static_cast<unsigned char>(c))) : c;
    begins_word = false;
  }
  return name;
}

}  // namespace sluice
