#include "engine/rows/padding.h"

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sluice {
namespace {

using ::testing::ElementsAreArray;

std::vector<int32_t> Padded(PaddingKind kind, std::vector<int32_t> tokens, size_t size) {
  const auto live = static_cast<int32_t>(tokens.size());
  tokens.resize(size, -7);
  Pad(kind, live, tokens);
  return tokens;
}

TEST(Padding, Fills) {
  struct Case {
    PaddingKind kind;
    std::vector<int32_t> tokens;
    std::vector<int32_t> expected;
  };
  const std::vector<Case> cases = {
      {PaddingKind::kZeros, {1, 2, 3}, {1, 2, 3, 0, 0}},
      {PaddingKind::kEdge, {1, 2, 3}, {1, 2, 3, 3, 3}},
      {PaddingKind::kReflect, {1, 2, 3}, {1, 2, 3, 2, 1, 2, 3, 2, 1}},
      {PaddingKind::kReflect, {1, 2}, {1, 2, 1, 2, 1}},
      {PaddingKind::kReflect, {5}, {5, 5, 5}},
      {PaddingKind::kAdaptive, {1, 2, 3}, {1, 2, 3, 2, 1}},
      {PaddingKind::kAdaptive, {1, 2, 3}, {1, 2, 3, 3, 3, 3}},
      {PaddingKind::kZeros, {1, 2}, {1, 2}},
      {PaddingKind::kEdge, {1, 2}, {1, 2}},
      {PaddingKind::kReflect, {1, 2}, {1, 2}},
      {PaddingKind::kAdaptive, {1, 2}, {1, 2}},
  };
  for (size_t i = 0; i < cases.size(); ++i) {
    const Case& c = cases[i];
    EXPECT_THAT(Padded(c.kind, c.tokens, c.expected.size()), ElementsAreArray(c.expected)) << i;
  }
}

}  // namespace
}  // namespace sluice
