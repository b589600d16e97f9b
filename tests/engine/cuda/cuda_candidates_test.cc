// Tests the candidates that compute the layers of a model on a device: the library's algorithms, by
// themselves or from a table, and the kernels that pass a trial.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "engine/cuda/algorithm_table.h"
#include "engine/cuda/cuda_backend.h"
#include "engine/cuda/dense_shapes.h"
#include "engine/cuda/emulator/simt_device.h"
#include "engine/cuda/kernel_candidates.h"
#include "tests/engine/cuda/cuda_model_fixture.h"
#include "tests/support/checkpoint_writer.h"
#include "tests/support/temporary_directory.h"

namespace sluice::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// These tests use the models of CudaModelTest.
class CudaCandidatesTest : public CudaModelTest {};

TEST(KernelCandidates, ATunedTierReportsTheShapesItSupports) {
  const KernelCandidates<kernels::cuda::BFloat16> all = AllCandidates<kernels::cuda::BFloat16>();
  const DeviceInfo device = {.name = "",
                             .architecture = "sm_90",
                             .processors = 132,
                             .memory_bytes = int64_t{80} << 30,
                             .shared_bytes_limit = 227 << 10};
  const auto product = [&](int32_t k, int32_t n) {
    return std::string(all.products.front().supports(device, {.k = k, .n = n}).message());
  };
  EXPECT_EQ(product(64, 64), "");
  EXPECT_EQ(product(64, 12), "widths must be multiples of 8");
  EXPECT_EQ(product(12, 64), "widths must be multiples of 8");
  const auto attention = [&](int32_t head_dim) {
    const AttentionShape shape = {
        .q_heads = 2, .kv_heads = 1, .head_dim = head_dim, .max_positions = 64, .causal = true};
    return std::string(all.attention.back().supports(device, shape).message());
  };
  EXPECT_EQ(attention(64), "");
  EXPECT_THAT(attention(12), ::testing::StartsWith("head_dim must be a multiple of 8 up to "));
}

// The library computes every row of a bucket, though only the live rows hold valid values.
TEST_F(CudaCandidatesTest, TheLibraryGivesARowTheSameBitsInEveryBucket) {
  std::vector<float> own;
  {
    Load(TinyConfig(2));
    const auto slot = executable_->CreateSlot({8, 1}, 4).value();
    own = Replay(*executable_->Prepare({8, 1}).value(), *slot, 7).value();
  }
  Load(TinyConfig(2), {.dense = {simt::SimtDense::kVaries, simt::SimtDense::kInvariant}},
       "cublaslt");
  EXPECT_EQ(backend_->info().profile, "cuda-simt-f32-pretended-simt_emulator-1");
  const auto slot = executable_->CreateSlot({80, 1}, 6).value();
  const auto small = executable_->Prepare({8, 1}).value();
  const auto large = executable_->Prepare({80, 1}).value();
  const auto logits = Replay(*small, *slot, 7).value();
  EXPECT_EQ(Replay(*large, *slot, 7).value(), logits);
  for (size_t i = 0; i < own.size(); ++i) EXPECT_NEAR(logits[i], own[i], 1e-4) << i;
  EXPECT_EQ(device_->captures(), 5)
      << "a head for few rows, for many and for diverse candidates, and two plans";
}

// The streams of two slots run concurrently.
TEST_F(CudaCandidatesTest, EachSlotAndEachHeadHasAWorkspaceOfItsOwn) {
  Load(TinyConfig(2), {.dense = {simt::SimtDense::kWorkspace}}, "cublaslt");
  const auto slot = executable_->CreateSlot({40, 1}, 4).value();
  const auto other = executable_->CreateSlot({40, 1}, 4).value();
  const auto small = executable_->Prepare({9, 1}).value();
  const auto large = executable_->Prepare({40, 1}).value();
  const auto logits = Replay(*small, *slot, 9).value();
  for (const auto* plan : {small.get(), large.get()}) {
    for (Slot* of : {slot.get(), other.get()}) {
      const auto again = Replay(*plan, *of, 9);
      ASSERT_TRUE(again.ok()) << again.status();
      EXPECT_EQ(*again, logits);
    }
  }
  EXPECT_TRUE(Replay(*large, *other, 40).ok());
}

TEST_F(CudaCandidatesTest, AMissingTableOfAlgorithmsIsANotice) {
  const simt::SimtOptions library = {.dense = {simt::SimtDense::kInvariant}};
  Load(TinyConfig(1), library);
  EXPECT_THAT(executable_->notices(), IsEmpty()) << "without a library";
  Load(TinyConfig(1), library, "cublaslt");
  EXPECT_EQ(backend_->info().profile, "cuda-simt-f32-pretended-simt_emulator-1");
  EXPECT_THAT(executable_->notices(),
              ElementsAre("there is no table of algorithms for SIMT emulator and this library; "
                          "the library's own order decides. gpu_bench tune writes a table"));
}

TEST_F(CudaCandidatesTest, TheLibraryIsUsedIfItIsFound) {
  Load(TinyConfig(1), {.dense = {simt::SimtDense::kInvariant}}, "auto");
  EXPECT_EQ(backend_->info().profile, "cuda-simt-f32-pretended-simt_emulator-1");
  // The profile, which determines the bits, names the library too.
  AlgorithmTable used("SIMT emulator", "pretended");
  for (const DenseShape& shape :
       DenseShapesOf(model_->graph, model_->config.vocab_size, DenseType::kF32)) {
    const auto kind = static_cast<uint64_t>(simt::SimtDense::kInvariant);
    ASSERT_TRUE(used.Add(shape, {kind}, "").ok());
  }
  EXPECT_EQ(executable_->algorithms(), used.Digest());
  Load(TinyConfig(1), {}, "auto");
  EXPECT_EQ(backend_->info().profile, "cuda-simt-f32");
  EXPECT_TRUE(executable_->algorithms().empty());
  EXPECT_THAT(executable_->notices(),
              ElementsAre(HasSubstr("slower: the emulator has no library of dense layers")));
}

TEST_F(CudaCandidatesTest, ATableOfAlgorithmsChangesBitsAndTheProfilesName) {
  const simt::SimtOptions library = {.dense = {simt::SimtDense::kInvariant,
                                               simt::SimtDense::kBackwards,
                                               simt::SimtDense::kUnfinished}};
  const auto logits = [this] {
    const auto slot = executable_->CreateSlot({8, 1}, 4).value();
    return Replay(*executable_->Prepare({8, 1}).value(), *slot, 7).value();
  };
  Load(TinyConfig(1), library, "cublaslt");
  const auto without = logits();
  const std::string algorithms_without = executable_->algorithms();
  EXPECT_FALSE(algorithms_without.empty());
  AlgorithmTable table("SIMT emulator", "pretended");
  for (const DenseShape& shape :
       DenseShapesOf(model_->graph, model_->config.vocab_size, DenseType::kF32)) {
    const auto kind = shape.head ? simt::SimtDense::kUnfinished : simt::SimtDense::kBackwards;
    ASSERT_TRUE(table.Add(shape, {static_cast<uint64_t>(kind)}, "").ok());
  }
  const TemporaryDirectory directory;
  WriteTestFile(directory.File("table.json"), table.Text());
  Load(TinyConfig(1), library, "cublaslt", directory.File("table.json"));
  EXPECT_EQ(backend_->info().profile, "cuda-simt-f32-pretended-simt_emulator-1-" + table.Digest());
  EXPECT_THAT(executable_->notices(),
              ElementsAre(HasSubstr("is not followed for 32 x 64 f32, head: row 0 has ")));
  EXPECT_NE(executable_->algorithms(), algorithms_without);
  const auto with = logits();
  EXPECT_NE(with, without);
  for (size_t i = 0; i < with.size(); ++i) EXPECT_NEAR(with[i], without[i], 1e-4) << i;
}

TEST_F(CudaCandidatesTest, KernelsThatPassATrialServeWithTheSameBits) {
  const auto logits = [this] {
    const auto slot = executable_->CreateSlot({8, 1}, 4).value();
    return Replay(*executable_->Prepare({8, 1}).value(), *slot, 7).value();
  };
  Load(TinyConfig(1));
  EXPECT_EQ(executable_->kernels(), "portable");
  EXPECT_EQ(executable_->algorithms(), "");
  const std::vector<float> untried = logits();
  Load(TinyConfig(1), {}, "own", "", "auto");
  EXPECT_EQ(executable_->kernels(), "attention portable; products portable");
  EXPECT_EQ(executable_->algorithms().size(), 16u);
  EXPECT_EQ(backend_->info().profile, "cuda-simt-f32") << "this GPU has no tuned kernels";
  EXPECT_EQ(logits(), untried);
  EXPECT_EQ(MakeCudaBackend(simt::MakeSimtDevice(), {.kernels = "best"}).status(),
            absl::InvalidArgumentError("cuda.kernels is \"best\", must be auto or portable"));
}

TEST_F(CudaCandidatesTest, ATunedTierIsPartOfTheProfileAndItsUseOfTheAlgorithms) {
  const auto load = [this](const std::string& architecture, const std::string& kernels) {
    executable_ = nullptr;
    backend_ = MakeCudaBackend(simt::MakeSimtDevice({.architecture = architecture}),
                               {.dtype = "bf16", .dense = "own", .kernels = kernels})
                   .value();
    executable_ = backend_->Load(model_).value();
    return executable_->algorithms();
  };
  model_ = RandomModel(TinyConfig(1), 3);
  const auto logits = [this] {
    const auto slot = executable_->CreateSlot({8, 1}, 4).value();
    return Replay(*executable_->Prepare({8, 1}).value(), *slot, 7).value();
  };
  const std::string portable = load("sm_80", "auto");
  EXPECT_EQ(backend_->info().profile, "cuda-sm_80-bf16");
  const std::vector<float> by_portable = logits();
  EXPECT_NE(load("sm_90", "auto"), portable);
  EXPECT_EQ(backend_->info().profile, "cuda-sm_90-bf16-hopper");
  // Only the tier for few rows computes both layers of the gated MLP in one kernel.
  EXPECT_EQ(executable_->kernels(), "attention portable; products hopper, hopper with few rows");
  EXPECT_THAT(executable_->notices(), IsEmpty());
  // The two read weights in different layouts.
  const std::vector<float> tuned = logits();
  ASSERT_EQ(tuned.size(), by_portable.size());
  for (size_t i = 0; i < tuned.size(); ++i) EXPECT_NEAR(tuned[i], by_portable[i], 0.05) << i;
  EXPECT_EQ(load("sm_90", "portable"), "");
  EXPECT_EQ(backend_->info().profile, "cuda-sm_90-bf16");
}

}  // namespace
}  // namespace sluice::testing
