#include "engine/runner/requests/caller_numbers.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "absl/strings/str_cat.h"

namespace sluice {
namespace {

TEST(CallerNumbersTest, EachNameHasItsOwnNumber) {
  CallerNumbers numbers;
  std::set<uint64_t> seen;
  for (size_t i = 0; i < CallerNumbers::kMostNames; ++i) {
    const std::string name = absl::StrCat("caller ", i);
    const uint64_t number = numbers.Of(name);
    ASSERT_GT(number, 0u);
    ASSERT_TRUE(seen.insert(number).second) << name;
    ASSERT_EQ(numbers.Of(name), number);
  }
  // No name beyond the limit gets the number of another, at the price of a new one each time.
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(seen.insert(numbers.Of("one more")).second);
  EXPECT_EQ(numbers.Of("caller 0"), 1u);
}

}  // namespace
}  // namespace sluice
