// Tests of features that only the CUDA backend has: captured graphs, and plans and slots that end
// in any order.
#include "engine/cuda/cuda_backend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/cuda/emulator/simt_device.h"
#include "kernels/cuda/attention.h"
#include "tests/engine/cuda/cuda_model_fixture.h"
#include "tests/support/checkpoint_writer.h"
#include "tests/support/temporary_directory.h"

namespace sluice::testing {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

TEST_F(CudaModelTest, APlanRefusesMoreCandidatesThanTheVocabularyHas) {
  Load(TinyConfig(1));
  const auto plan = executable_->Prepare({8, 1}).value();
  const auto vocab = static_cast<int32_t>(model_->config.vocab_size);
  EXPECT_TRUE(plan->Accepts({.num_top = vocab}));
  EXPECT_FALSE(plan->Accepts({.num_top = vocab + 1}));
}

// A slot for few rows has room for one list of the whole vocabulary, and no more.
TEST_F(CudaModelTest, ARowOfASmallSlotMayHaveAllTokensAsCandidates) {
  ModelConfig config = TinyConfig(1);
  config.vocab_size = 150;  // longer than two lists of a captured head
  Load(config);
  const auto slot = executable_->CreateSlot({1, 1}, 1).value();
  const auto plan = executable_->Prepare({1, 1}).value();
  StepBatch batch(1, 1, static_cast<int32_t>(config.max_positions), backend_->info().page_tokens);
  const int32_t token = 5, page = 0;
  const StepSequence step{0, 1, &token, &page};
  std::vector<int32_t> ids(config.vocab_size);
  std::vector<float> logprobs(config.vocab_size);
  kernels::SampleResult result;
  const SampledRow sampled{.num_top = static_cast<int32_t>(ids.size()),
                           .top_ids = ids.data(),
                           .top_logprobs = logprobs.data(),
                           .result = &result};
  batch.Assign({&step, 1}, {&sampled, 1}, executable_->row_order());
  ASSERT_TRUE(executable_->Replay(*plan, *slot, batch).ok());
  EXPECT_TRUE(std::is_sorted(logprobs.rbegin(), logprobs.rend()));
  std::sort(ids.begin(), ids.end());
  std::vector<int32_t> all(ids.size());
  std::iota(all.begin(), all.end(), 0);
  EXPECT_EQ(ids, all);
}

// Norm, product of q, k and v, rotation, attention, product; norm, gate, the rest with its
// activation, product. The embedding and the last norm come once, and the head has four.
TEST_F(CudaModelTest, ADecodeStepHasNineKernelsALayer) {
  for (const int64_t layers : {1, 2, 5}) {
    for (const bool library : {false, true}) {
      Load(TinyConfig(layers), {.dense = {simt::SimtDense::kInvariant}}, library ? "auto" : "own");
      const auto slot = executable_->CreateSlot({8, 1}, 4).value();
      const auto plan = executable_->Prepare({8, 1}).value();
      const simt::SimtCounts before = device_->counts();
      ASSERT_TRUE(Replay(*plan, *slot, 1).ok());
      EXPECT_EQ((device_->counts() - before).nodes, 2 + 9 * layers + 4)
          << layers << " layers, library " << library;
    }
  }
}

// The gate, the rest and the activation are one kernel if a bucket's rows are few.
TEST_F(CudaModelTest, ADecodeStepInBf16HasAKernelLessALayer) {
  for (const int64_t layers : {1, 2}) {
    Load(TinyConfig(layers), {}, "own", "", "portable", "bf16");
    const auto logits = [&](int32_t tokens, int32_t kernels) {
      const auto slot = executable_->CreateSlot({tokens, 1}, 20).value();
      const auto plan = executable_->Prepare({tokens, 1}).value();
      const simt::SimtCounts before = device_->counts();
      auto values = Replay(*plan, *slot, 3).value();
      EXPECT_EQ((device_->counts() - before).nodes, 2 + kernels * layers + 4)
          << layers << " layers, " << tokens << " tokens";
      return values;
    };
    // The emulated GPU has one processor, so a bucket of several tiles has another kernel.
    EXPECT_EQ(logits(8, 8), logits(256, 9)) << "the rows have the same bits";
  }
}

// A separate kernel merges contexts of several segments of keys. Tiles are divided for the second
// device and not for the first.
TEST_F(CudaModelTest, LongContextsUseOneMoreKernelAndKeepTheirBits) {
  constexpr int32_t kLength = 600, kPages = 38;
  ModelConfig config = TinyConfig(1);
  config.max_positions = kLength;
  std::vector<std::vector<float>> logits;
  for (const int32_t processors : {1, 132}) {
    Load(config, {.processors = processors});
    const auto slot = executable_->CreateSlot({kLength, 1}, kPages).value();
    const auto plan = executable_->Prepare({kLength, 1}).value();
    const simt::SimtCounts before = device_->counts();
    logits.push_back(Replay(*plan, *slot, kLength).value());
    EXPECT_EQ((device_->counts() - before).nodes, 2 + 10 + 4);
  }
  EXPECT_EQ(logits[0], logits[1]);
}

TEST_F(CudaModelTest, AScoringStepOf4096RowsWaitsOnce) {
  constexpr int32_t kSequences = 64, kLength = 64, kRows = kSequences * kLength;
  ModelConfig config = TinyConfig(1);
  config.max_positions = kLength;
  Load(config);
  const auto slot = executable_->CreateSlot({kRows, kSequences}, kRows / 16).value();
  const auto plan = executable_->Prepare({kRows, kSequences}).value();
  StepBatch batch(kRows, kSequences, kLength, backend_->info().page_tokens);
  const std::vector<int32_t> tokens(kLength, 3);
  std::vector<int32_t> pages(slot->pages());
  std::iota(pages.begin(), pages.end(), 0);
  std::vector<kernels::SampleResult> results(kRows);
  std::vector<StepSequence> sequences;
  std::vector<SampledRow> sampled;
  for (int32_t s = 0; s < kSequences; ++s) {
    sequences.push_back({.first_position = 0,
                         .count = kLength,
                         .tokens = tokens.data(),
                         .pages = pages.data() + s * kLength / 16});
    for (int32_t i = 0; i < kLength; ++i) {
      sampled.push_back(
          {.sequence = s, .position = i, .target = 5, .result = &results[sampled.size()]});
    }
  }
  batch.Assign(sequences, sampled, executable_->row_order());
  const simt::SimtCounts before = device_->counts();
  ASSERT_TRUE(executable_->Replay(*plan, *slot, batch).ok());
  const simt::SimtCounts costs = device_->counts() - before;
  EXPECT_EQ(costs.waits, 1);
  EXPECT_EQ(costs.runs, 1 + kRows / 256);
}

TEST_F(CudaModelTest, EachPlanIsCapturedOnceForASlotAndNeverDuringReplays) {
  Load(TinyConfig(1));
  const auto slot = executable_->CreateSlot({40, 1}, 4).value();
  const int64_t head = device_->captures();
  EXPECT_EQ(head, 4) << "a slot's head is captured with it, for few rows, for many, for scoring "
                        "and for diverse candidates";
  const auto small = executable_->Prepare({8, 1}).value();
  const auto large = executable_->Prepare({40, 1}).value();
  EXPECT_EQ(device_->captures(), head + 2);
  for (int32_t length = 1; length <= 40; length += 3) {
    ASSERT_TRUE(Replay(length <= 8 ? *small : *large, *slot, length).ok());
  }
  EXPECT_EQ(device_->captures(), head + 2);
}

// A slot that is made after a plan has no captured graph of it and launches the kernels one by one.
TEST_F(CudaModelTest, KernelsWithoutAGraphGiveTheSameBits) {
  ModelConfig config = TinyConfig(2);
  config.xsa.layers[1] = true;
  Load(config);
  const auto old_slot = executable_->CreateSlot({24, 1}, 3).value();
  const auto plan = executable_->Prepare({24, 1}).value();
  const auto new_slot = executable_->CreateSlot({24, 1}, 3).value();
  for (int32_t length : {1, 17, 24}) {
    EXPECT_EQ(Replay(*plan, *old_slot, length).value(), Replay(*plan, *new_slot, length).value());
  }
}

TEST_F(CudaModelTest, ASlotMayEndBeforeAPlan) {
  Load(TinyConfig(1));
  auto first = executable_->CreateSlot({8, 1}, 2).value();
  const auto plan = executable_->Prepare({8, 1}).value();
  first.reset();
  const auto second = executable_->CreateSlot({8, 1}, 2).value();
  EXPECT_TRUE(Replay(*plan, *second, 8).ok());
}

// The logits of the first step exceed the staging area, so nothing on the slot's main stream waits
// for the input of the second step, which is sent ahead.
TEST_F(CudaModelTest, ASlotMayEndWithAnInputUnderWay) {
  constexpr int32_t kLength = 80;
  ModelConfig config = TinyConfig(1);
  config.max_positions = kLength;
  Load(config);
  const int64_t vocab = model_->config.vocab_size;
  auto slot = executable_->CreateSlot({kLength, 1}, 8).value();
  const auto plan = executable_->Prepare({kLength, 1}).value();
  const std::vector<int32_t> tokens(kLength, 3);
  std::vector<int32_t> pages(slot->pages());
  std::iota(pages.begin(), pages.end(), 0);
  std::vector<kernels::SampleResult> results(kLength);
  std::vector<float> logits(kLength * vocab);
  std::vector<SampledRow> sampled;
  for (int32_t i = 0; i < kLength; ++i) {
    sampled.push_back({.position = i, .logits = &logits[i * vocab], .result = &results[i]});
  }
  const StepSequence step{0, kLength, tokens.data(), pages.data()};
  std::vector<StepBatch> batches;  // a slot refers to a batch until its step has ended
  batches.reserve(2);
  for (int i = 0; i < 2; ++i) {
    batches.emplace_back(kLength, 1, static_cast<int32_t>(model_->config.max_positions),
                         backend_->info().page_tokens);
    batches.back().Assign({&step, 1}, sampled, executable_->row_order());
    executable_->Start(*plan, *slot, batches.back());
  }
  slot.reset();
  EXPECT_GT(device_->FreeMemory(), 0) << "the device is lost";
}

TEST_F(CudaModelTest, APlanIsNotCapturedForASlotThatIsTooSmall) {
  Load(TinyConfig(1));
  const auto slot = executable_->CreateSlot({8, 1}, 2).value();
  const int64_t before = device_->captures();
  ASSERT_TRUE(executable_->Prepare({9, 1}).ok());
  EXPECT_EQ(device_->captures(), before);
}

TEST_F(CudaModelTest, ASlotWithoutMemoryDoesNotFailOthers) {
  Load(TinyConfig(1), {.memory_bytes = 4 << 20});
  EXPECT_EQ(executable_->CreateSlot({1 << 14, 1}, 1 << 11).status().code(),
            absl::StatusCode::kResourceExhausted);
  const auto slot = executable_->CreateSlot({8, 1}, 2).value();
  const auto plan = executable_->Prepare({8, 1}).value();
  EXPECT_TRUE(Replay(*plan, *slot, 5).ok());
}

// A captured graph takes kGraph bytes. There is memory for the graphs of the head and of two plans,
// which still run after a third plan failed.
TEST_F(CudaModelTest, APlanWithoutMemoryForItsGraphDoesNotFailOthers) {
  constexpr int64_t kGraph = 8 << 20;
  Load(TinyConfig(1), {.memory_bytes = (4 << 20) + 6 * kGraph, .graph_bytes = kGraph});
  const auto slot = executable_->CreateSlot({40, 1}, 4).value();
  const auto small = executable_->Prepare({8, 1}).value();
  auto large = executable_->Prepare({40, 1}).value();
  EXPECT_EQ(executable_->Prepare({16, 1}).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(Replay(*small, *slot, 5).ok());
  EXPECT_TRUE(Replay(*large, *slot, 30).ok());
  large.reset();
  EXPECT_TRUE(executable_->Prepare({16, 1}).ok()) << "its memory is free again";
}

TEST_F(CudaModelTest, ALostDeviceRunsNothingMore) {
  Load(TinyConfig(1));
  const auto slot = executable_->CreateSlot({8, 1}, 2).value();
  const auto plan = executable_->Prepare({8, 1}).value();
  ASSERT_TRUE(Replay(*plan, *slot, 5).ok());
  device_->Lose("an access out of bounds");
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(Replay(*plan, *slot, 5).status(), absl::UnavailableError("an access out of bounds"));
  }
  EXPECT_EQ(executable_->Prepare({7, 1}).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(executable_->CreateSlot({8, 1}, 2).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(backend_->FreeMemory(), 0);
}

TEST_F(CudaModelTest, HeadsOfMoreThan256ValuesAreUnimplemented) {
  ModelConfig config = TinyConfig(1);
  config.head_dim = 258;
  backend_ = MakeCudaBackend(simt::MakeSimtDevice({}), {.dtype = "f32"}).value();
  EXPECT_EQ(backend_->Load(RandomModel(config, 3)).status(),
            absl::UnimplementedError("head_dim is 258; the CUDA kernels support at most 256"));
}

// The limits of compute capability 8.0 and 8.6, and one that no GPU has.
TEST_F(CudaModelTest, DisentangledAttentionWithASoftCapIsRefused) {
  ModelConfig config = TinySluiceConfig(1);
  config.kv_heads = config.heads;
  config.causal = false;
  config.score_soft_cap = 2;
  config.disentangled = {.span = 4};
  backend_ = MakeCudaBackend(simt::MakeSimtDevice({}), {.dtype = "f32"}).value();
  EXPECT_EQ(backend_->Load(RandomModel(config, 1)).status(),
            absl::InvalidArgumentError("disentangled attention with a soft cap runs only on a CPU; "
                                       "serve the model with device: cpu"));
}

TEST_F(CudaModelTest, AModelLoadsIfABlockHasEnoughSharedMemoryAndItsBitsDoNotDependOnIt) {
  ModelConfig config = TinyConfig(1);
  config.head_dim = 256;
  std::vector<std::vector<float>> logits;
  for (const int32_t limit : {163 << 10, kernels::cuda::kSharedBytesOfEveryGpu}) {
    Load(config, {.shared_bytes_limit = limit});
    const auto slot = executable_->CreateSlot({8, 1}, 1).value();
    const auto plan = executable_->Prepare({8, 1}).value();
    logits.push_back(Replay(*plan, *slot, 6).value());
  }
  EXPECT_EQ(logits[0], logits[1]);
  const auto backend =
      MakeCudaBackend(simt::MakeSimtDevice({.shared_bytes_limit = 65536}), {.dtype = "f32"})
          .value();
  EXPECT_EQ(
      backend->Load(model_).status(),
      absl::FailedPreconditionError(absl::StrCat(
          "head_dim 256 in f32 needs ", kernels::cuda::AttentionSharedBytes<float>(256, 65536),
          " bytes of shared memory a block, the GPU has 65536")));
}

TEST_F(CudaModelTest, RefusesBucketsOutsideTheRange) {
  Load(TinyConfig(1));
  for (const Bucket& bucket : {Bucket{0, 1}, Bucket{1, 0}, Bucket{(1 << 20) + 1, 1}}) {
    EXPECT_EQ(executable_->Prepare(bucket).status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(executable_->CreateSlot(bucket, 2).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
}

// The ranges of a step's host work are as long as in the CPU's model, so that several threads may
// take them (kernels::ThreadPool).
TEST(MakeCudaBackendTest, ThreadsShareTheHostsWork) {
  for (const int threads : {1, 3}) {
    const auto backend =
        MakeCudaBackend(simt::MakeSimtDevice(), {.dtype = "f32", .threads = threads}).value();
    const auto executable = backend->Load(RandomModel(TinyConfig(1), 3)).value();
    std::array<int, 10> taken{};
    executable->ParallelFor(std::ssize(taken), 3, [&](int64_t begin, int64_t end) {
      EXPECT_LE(end - begin, 3);
      for (int64_t i = begin; i < end; ++i) ++taken[i];
    });
    EXPECT_THAT(taken, Each(1));
  }
}

TEST(MakeCudaBackendTest, NamesItsProfileAndChecksItsOptions) {
  const auto backend = MakeCudaBackend(simt::MakeSimtDevice(), {.dtype = "bf16"}).value();
  EXPECT_EQ(backend->info().profile, "cuda-simt-bf16");
  EXPECT_EQ(backend->info().device, "cuda:0");
  EXPECT_THAT(
      std::string(MakeCudaBackend(simt::MakeSimtDevice(), {.dtype = "f16"}).status().message()),
      HasSubstr("\"f16\", must be f32 or bf16"));
  const auto dense = [](const std::string& name) {
    return MakeCudaBackend(simt::MakeSimtDevice(), {.dense = name}).status();
  };
  EXPECT_THAT(std::string(dense("best").message()),
              HasSubstr("\"best\", must be auto, own or cublaslt"));
  EXPECT_EQ(dense("cublaslt").code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(
      MakeCudaBackend(simt::MakeSimtDevice(), {.dense = "own", .algorithms = "file"}).status(),
      absl::InvalidArgumentError("cuda.algorithms needs cuda.dense: cublaslt"));
  EXPECT_THAT(
      std::string(
          MakeCudaBackend(simt::MakeSimtDevice(), {.algorithms = "file"}).status().message()),
      HasSubstr("cuda.algorithms is set, but the emulator has no library"));
  EXPECT_EQ(MakeCudaBackend(simt::MakeSimtDevice({.dense = {simt::SimtDense::kInvariant}}),
                            {.dense = "cublaslt", .algorithms = "/no/such/file"})
                .status()
                .code(),
            absl::StatusCode::kNotFound);
}

TEST(CudaLoadTest, ErrorsNameTheTensor) {
  const TemporaryDirectory directory;
  ModelConfig config = TinyConfig(1);
  WriteModel(config, 1, kernels::DType::kF32, directory.path());
  config.vocab_size += 1;
  WriteTestFile(directory.File("config.json"), ConfigJson(config));
  const auto model = LoadModel("m", 1, directory.path());
  ASSERT_TRUE(model.ok()) << model.status();
  const auto backend = MakeCudaBackend(simt::MakeSimtDevice(), {.dtype = "f32"}).value();
  EXPECT_EQ(backend->Load(*model).status().message(),
            "tensor model.embed_tokens.weight has shape [61, 32], must be [62, 32]");
}

}  // namespace
}  // namespace sluice::testing
