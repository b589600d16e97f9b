#include "engine/cpu/select_attention.h"

#include <gtest/gtest.h>

#include "tests/support/checkpoint_writer.h"
#include "tests/support/table.h"

namespace sluice::testing {
namespace {

using VariantKind = AttentionVariant::Kind;

struct SelectionRow {
  const char* name;
  AttentionVariant wanted = {VariantKind::kAuto};
  int threads = 2;
  int64_t context = 32768;
  int64_t kv_heads = 1;
  AttentionVariant selected = {VariantKind::kOnePass};
};

class SelectAttentionTable : public TableTest<SelectionRow> {};

TEST_P(SelectAttentionTable, SelectsForTheLongestSequence) {
  ModelConfig config = TinyConfig(1);
  config.heads = 4 * row().kv_heads;
  config.kv_heads = row().kv_heads;
  config.max_positions = row().context;
  const SelectedAttention selected = SelectAttention(row().wanted, config, row().threads);
  EXPECT_EQ(AttentionVariantName(selected.variant), AttentionVariantName(row().selected));
  EXPECT_EQ(selected.reason.find("auto takes it") == 0, row().wanted.kind == VariantKind::kAuto)
      << selected.reason;
}

constexpr AttentionVariant kSplitAuto = {VariantKind::kSplit, 0};

const SelectionRow kSelectionRows[] = {
    {.name = "SplitsOneHeadOfALongSequenceBetweenTwoThreads", .selected = kSplitAuto},
    {.name = "ReadsAHeadForEachThreadInOnePass", .kv_heads = 2},
    {.name = "SplitsEightHeadsBetween64Threads",
     .threads = 64,
     .kv_heads = 8,
     .selected = kSplitAuto},
    {.name = "SplitsThreeHeadsBetweenTwoThreads", .kv_heads = 3, .selected = kSplitAuto},
    {.name = "ReadsManyHeadsInOnePass", .kv_heads = 15},
    {.name = "OneThreadDoesNotSplit", .threads = 1},
    {.name = "DoesNotSplitOneSegment", .context = 512},
    {.name = "SplitsTwoSegments", .context = 513, .selected = kSplitAuto},
    {.name = "TakesAGivenOnePass",
     .wanted = {VariantKind::kOnePass},
     .selected = {VariantKind::kOnePass}},
    {.name = "TakesAGivenTwoPass",
     .wanted = {VariantKind::kTwoPass},
     .selected = {VariantKind::kTwoPass}},
    {.name = "TakesAGivenSplitOnOneThread",
     .wanted = {VariantKind::kSplit, 7},
     .threads = 1,
     .context = 40,
     .selected = {VariantKind::kSplit, 7}},
};
SLUICE_TABLE(SelectAttentionTable, kSelectionRows);

TEST(KernelOrder, IsTheOrderOfTheVariant) {
  using kernels::AttentionChoice;
  using kernels::AttentionOrder;
  EXPECT_EQ(KernelOrder({VariantKind::kOnePass}), AttentionChoice{AttentionOrder::kOnePass});
  EXPECT_EQ(KernelOrder({VariantKind::kTwoPass}), AttentionChoice{AttentionOrder::kTwoPass});
  EXPECT_EQ(KernelOrder(kSplitAuto), AttentionChoice{AttentionOrder::kBalanced});
  EXPECT_EQ(KernelOrder({VariantKind::kSplit, 6}), (AttentionChoice{AttentionOrder::kSplit, 6}));
}

}  // namespace
}  // namespace sluice::testing
