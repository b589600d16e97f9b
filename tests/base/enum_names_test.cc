#include "base/enum_names.h"

#include <gtest/gtest.h>

#include "engine/options.h"

namespace sluice {
namespace {

enum class Hidden { kFirst, kSecond };
constexpr auto EnumNamesOf(Hidden) {
  using enum Hidden;
  return EnumNameTable<Hidden>({{kFirst, "first"}, {kSecond, "second"}});
}

struct Outer {
  enum class Inner { kOnly };
};

TEST(CountEnumerators, CountsEnumsInEveryScope) {
  static_assert(CountEnumerators<Hidden>() == 2);
  static_assert(CountEnumerators<Outer::Inner>() == 1);
  static_assert(CountEnumerators<StrategyKind>() == 5);
}

TEST(EnumNames, GiveTheNameOfAValueAndTheValueOfAName) {
  static_assert(NameOf(Hidden::kSecond) == "second");
  static_assert(EnumOf<Hidden>("first") == Hidden::kFirst);
  EXPECT_EQ(EnumOf<Hidden>("third"), std::nullopt);
  EXPECT_EQ(EnumOf<Hidden>(""), std::nullopt);
  for (const auto& [strategy, name] : kEnumNames<StrategyKind>) {
    EXPECT_EQ(NameOf(strategy), name);
    EXPECT_EQ(EnumOf<StrategyKind>(name), strategy);
  }
}

TEST(EnumNamesDeathTest, AValueOutsideTheEnumHasNoName) {
  EXPECT_DEATH(NameOf(static_cast<Hidden>(2)), "broken invariant");
}

}  // namespace
}  // namespace sluice
