#include "engine/runner/requests/caller_numbers.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "absl/strings/str_cat.h"

namespace sluice {
namespace {

// Many more names are used than are kept.
TEST(CallerNumbersTest, ANameKeepsItsNumberWhileItIsUsed) {
  CallerNumbers numbers;
  std::set<uint64_t> seen;
  const uint64_t of_frequent = numbers.Of("frequent");
  seen.insert(of_frequent);
  for (size_t i = 0; i < 5 * CallerNumbers::kKeptNames; ++i) {
    const std::string name = absl::StrCat("caller ", i);
    const uint64_t number = numbers.Of(name);
    ASSERT_GT(number, 0u);
    ASSERT_TRUE(seen.insert(number).second) << name << " has the number of another";
    ASSERT_EQ(numbers.Of(name), number) << name;
    if (i % (CallerNumbers::kKeptNames / 2) == 0) {
      ASSERT_EQ(numbers.Of("frequent"), of_frequent) << i;
    }
  }
  EXPECT_TRUE(seen.insert(numbers.Of("caller 0")).second) << "it was forgotten";
}

TEST(CallerNumbersTest, ANameKeepsItsNumberUntilManyOthersWereUsed) {
  for (const size_t before : {size_t{0}, CallerNumbers::kKeptNames / 2}) {
    CallerNumbers numbers;
    for (size_t i = 0; i < before; ++i) numbers.Of(absl::StrCat("before ", i));
    const uint64_t number = numbers.Of("name");
    for (size_t i = 1; i < CallerNumbers::kKeptNames; ++i) numbers.Of(absl::StrCat("after ", i));
    EXPECT_EQ(numbers.Of("name"), number) << before;
  }
}

}  // namespace
}  // namespace sluice
