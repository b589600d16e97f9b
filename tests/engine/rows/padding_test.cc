#include "engine/rows/padding.h"

#include <vector>

#include "gtest/gtest.h"
#include "tests/support/table.h"

namespace sluice {
namespace {

std::vector<int32_t> Padded(PaddingKind kind, std::vector<int32_t> tokens, size_t size) {
  const auto live = static_cast<int32_t>(tokens.size());
  tokens.resize(size, -7);
  Pad(kind, live, tokens);
  return tokens;
}

struct PaddingRow {
  const char* name;
  PaddingKind kind;
  std::vector<int32_t> tokens;
  std::vector<int32_t> expected;
};
class PaddingTable : public TableTest<PaddingRow> {};

TEST_P(PaddingTable, FillsTheRowAfterTheTokens) {
  EXPECT_EQ(Padded(row().kind, row().tokens, row().expected.size()), row().expected);
}

const PaddingRow kPaddingRows[] = {
    {.name = "ZerosAreZeros",
     .kind = PaddingKind::kZeros,
     .tokens = {1, 2, 3},
     .expected = {1, 2, 3, 0, 0}},
    {.name = "EdgeRepeatsTheLast",
     .kind = PaddingKind::kEdge,
     .tokens = {1, 2, 3},
     .expected = {1, 2, 3, 3, 3}},
    {.name = "ReflectGoesBackAndForth",
     .kind = PaddingKind::kReflect,
     .tokens = {1, 2, 3},
     .expected = {1, 2, 3, 2, 1, 2, 3, 2, 1}},
    {.name = "ReflectOfTwoAlternates",
     .kind = PaddingKind::kReflect,
     .tokens = {1, 2},
     .expected = {1, 2, 1, 2, 1}},
    {.name = "ReflectOfOneRepeatsIt",
     .kind = PaddingKind::kReflect,
     .tokens = {5},
     .expected = {5, 5, 5}},
    {.name = "AdaptiveReflectsWhileThePaddingIsShort",
     .kind = PaddingKind::kAdaptive,
     .tokens = {1, 2, 3},
     .expected = {1, 2, 3, 2, 1}},
    {.name = "AdaptiveRepeatsTheLastWhenItIsLong",
     .kind = PaddingKind::kAdaptive,
     .tokens = {1, 2, 3},
     .expected = {1, 2, 3, 3, 3, 3}},
    {.name = "ZerosChangeNothingWithoutPadding",
     .kind = PaddingKind::kZeros,
     .tokens = {1, 2},
     .expected = {1, 2}},
    {.name = "EdgeChangesNothingWithoutPadding",
     .kind = PaddingKind::kEdge,
     .tokens = {1, 2},
     .expected = {1, 2}},
    {.name = "ReflectChangesNothingWithoutPadding",
     .kind = PaddingKind::kReflect,
     .tokens = {1, 2},
     .expected = {1, 2}},
    {.name = "AdaptiveChangesNothingWithoutPadding",
     .kind = PaddingKind::kAdaptive,
     .tokens = {1, 2},
     .expected = {1, 2}},
};
SLUICE_TABLE(PaddingTable, kPaddingRows);

}  // namespace
}  // namespace sluice
