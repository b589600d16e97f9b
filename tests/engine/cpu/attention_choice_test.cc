#include "engine/cpu/attention_choice.h"

#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <utility>

#include "engine/cpu/cpu_backend.h"
#include "tests/support/checkpoint_writer.h"
#include "tests/support/table.h"

namespace sluice::testing {
namespace {

using VariantKind = AttentionVariant::Kind;

// Returns a processor whose cores have a cache each and share the memory.
einsum::DeviceDescription Processor(int32_t workers) {
  return {.name = "processor",
          .workers = workers,
          .flops_per_second = 1e11,
          .exponentials_per_second = 4e9,
          .launch_seconds = 1e-6,
          .levels = {{.name = "L2", .bytes = 1 << 20, .bytes_per_second = 1e11},
                     {.name = "memory",
                      .bytes = 1e15,
                      .bytes_per_second = 1.2e10 * workers,
                      .shared = true,
                      .worker_bytes_per_second = 1.2e10}}};
}

struct ChoiceRow {
  const char* name;
  AttentionVariant wanted = {VariantKind::kAuto};
  einsum::DeviceDescription device = Processor(2);
  int64_t context = 32768;
  int64_t kv_heads = 1;
  AttentionVariant chosen = {VariantKind::kOnePass};
};

class AttentionChoiceTable : public TableTest<ChoiceRow> {};

TEST_P(AttentionChoiceTable, IsMadeForTheLongestSequence) {
  ModelConfig config = TinyConfig(1);
  config.heads = 4 * row().kv_heads;
  config.kv_heads = row().kv_heads;
  config.head_dim = 64;
  config.max_positions = row().context;
  int measured = 0;
  const AttentionDecision decision = ChooseAttention(
      row().wanted, config, [&]() -> const auto& {
        ++measured;
        return row().device;
      });
  EXPECT_EQ(AttentionVariantName(decision.variant), AttentionVariantName(row().chosen));
  const bool is_auto = row().wanted.kind == VariantKind::kAuto;
  EXPECT_EQ(measured, is_auto ? 1 : 0) << "a named variant needs no device";
  EXPECT_EQ(decision.reason.find("auto takes it") == 0, is_auto) << decision.reason;
}

constexpr AttentionVariant kSplitAuto = {VariantKind::kSplit, 0};

const ChoiceRow kChoiceRows[] = {
    {.name = "OneHeadOfALongSequenceIsSharedByTwoThreads", .chosen = kSplitAuto},
    {.name = "AHeadForEachThreadIsReadInOnePass", .kv_heads = 2},
    {.name = "EightHeadsAreSharedBy64Threads",
     .device = Processor(64),
     .kv_heads = 8,
     .chosen = kSplitAuto},
    {.name = "ThreeHeadsOnTwoThreadsAreSplit", .kv_heads = 3, .chosen = kSplitAuto},
    {.name = "OneThreadHasNothingToShare", .device = Processor(1)},
    {.name = "ASegmentIsNotSplit", .context = 512},
    {.name = "AShortContextIsNotWorthALaunch",
     .device =
         [] {
           einsum::DeviceDescription device = Processor(2);
           device.launch_seconds = 1e-3;
           return device;
         }(),
     .context = 1024},
    {.name = "AGivenOnePassIsTaken",
     .wanted = {VariantKind::kOnePass},
     .chosen = {VariantKind::kOnePass}},
    {.name = "AGivenTwoPassIsTaken",
     .wanted = {VariantKind::kTwoPass},
     .chosen = {VariantKind::kTwoPass}},
    {.name = "AGivenSplitIsTakenOnOneThread",
     .wanted = {VariantKind::kSplit, 7},
     .device = Processor(1),
     .context = 40,
     .chosen = {VariantKind::kSplit, 7}},
};
SLUICE_TABLE(AttentionChoiceTable, kChoiceRows);

TEST(KernelChoice, IsTheOrderOfTheVariant) {
  using kernels::AttentionChoice;
  using kernels::AttentionOrder;
  EXPECT_EQ(KernelChoice({VariantKind::kOnePass}), AttentionChoice{AttentionOrder::kOnePass});
  EXPECT_EQ(KernelChoice({VariantKind::kTwoPass}), AttentionChoice{AttentionOrder::kTwoPass});
  EXPECT_EQ(KernelChoice(kSplitAuto), AttentionChoice{AttentionOrder::kBalanced});
  EXPECT_EQ(KernelChoice({VariantKind::kSplit, 6}), (AttentionChoice{AttentionOrder::kSplit, 6}));
}

// The same model and threads get another variant with another file.
TEST(AttentionDevice, AFileDecidesWhatAutoIs) {
  const std::string path = ::testing::TempDir() + "attention_choice_test_device.json";
  ModelConfig config = TinyConfig(1);
  config.kv_heads = 1;
  config.max_positions = 32768;
  const auto model = RandomModel(config, 31);
  for (const auto& [workers, chosen] :
       {std::pair{1, AttentionVariant{VariantKind::kOnePass}}, std::pair{2, kSplitAuto}}) {
    std::ofstream(path) << einsum::DeviceDescriptionJson(Processor(workers));
    const auto backend = MakeCpuBackend({.threads = 2}, {.device = path});
    ASSERT_TRUE(backend.ok()) << backend.status();
    EXPECT_EQ(AttentionVariantName((*backend)->Load(model).value()->attention()),
              AttentionVariantName(chosen));
  }
  const absl::Status missing = MakeCpuBackend({}, {.device = path + ".missing"}).status();
  EXPECT_NE(missing.message().find(path + ".missing"), std::string::npos) << missing;
}

}  // namespace
}  // namespace sluice::testing
