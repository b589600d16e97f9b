#include "base/text_wrap.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(Wrap, BreaksAtSpaces) {
  EXPECT_THAT(Wrap("", 10), IsEmpty());
  EXPECT_THAT(Wrap("one two three", 7), ElementsAre("one two", "three"));
  EXPECT_THAT(Wrap("one two three", 6), ElementsAre("one", "two", "three"));
  EXPECT_THAT(Wrap("a unbreakable b", 5), ElementsAre("a", "unbreakable", "b"));
}

TEST(Suggestion, NamesTheNearestWordIfAnyIsNear) {
  const std::vector<std::string> known = {"max_tokens", "min_tokens", "ratio"};
  EXPECT_EQ(Suggestion("max_token", known), "; did you mean max_tokens?");
  EXPECT_EQ(Suggestion("min_tokens_", known), "; did you mean min_tokens?");
  EXPECT_EQ(Suggestion("raito", known), "; did you mean ratio?");
  EXPECT_EQ(Suggestion("completely_else", known), "");
  EXPECT_EQ(Suggestion("x", known), "");
  EXPECT_EQ(Suggestion(std::string(100000, 'x'), known), "");
  EXPECT_EQ(Suggestion("a", {}), "");
}

}  // namespace
}  // namespace sluice
