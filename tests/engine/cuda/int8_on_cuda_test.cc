// Models in int8 on an emulated GPU. They compute the same as the CPU, no matter which op wrote the
// rows that a layer quantises. Models that need a CPU are refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "engine/cpu/cpu_backend.h"
#include "engine/cuda/cuda_backend.h"
#include "engine/cuda/emulator/simt_device.h"
#include "tests/engine/cpu/int8_models.h"
#include "tests/engine/cpu/runner.h"
#include "tests/support/table.h"

namespace sluice::testing {
namespace {

using ::testing::HasSubstr;

std::unique_ptr<Backend> Cuda(std::vector<simt::SimtDense> dense = {}, int32_t processors = 1) {
  const CudaBackendOptions options = {
      .dtype = "f32", .dense = dense.empty() ? "own" : "cublaslt", .poison = true};
  auto device = simt::MakeSimtDevice({.processors = processors, .dense = std::move(dense)});
  return MakeCudaBackend(std::move(device), options).value();
}

// Returns the largest difference relative to the largest value.
double Difference(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  double difference = 0, largest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference = std::max(difference, std::abs(double{a[i]} - b[i]));
    largest = std::max(largest, std::abs(double{b[i]}));
  }
  return difference / largest;
}

struct Int8Row {
  const char* name;
  NormOrder order = NormOrder::kPre;
  bool gated = true;
  int64_t intermediate = 40;
  int32_t processors = 1;  // more than a product has large tiles: they share small ones
  std::vector<simt::SimtDense> dense = {};
  bool experts = false;
};
class Int8OnCudaTable : public TableTest<Int8Row> {};

// Attention and norms differ by rounding, and so may a few of the quantised values. A value that is
// off by one changes a sum by about 1/127 of a product.
TEST_P(Int8OnCudaTable, AModelComputesTheSameAsTheCpu) {
  ModelConfig config = row().experts ? Int8ExpertsConfig() : Int8Config(row().order, row().gated);
  config.intermediate_size = row().intermediate;
  const auto model = RandomModel(config, 5);
  const Bucket bucket{24, 2};
  std::mt19937_64 random(6);
  const std::vector<std::vector<int32_t>> prompts = {
      RandomTokens(random, 9, model->config.vocab_size),
      RandomTokens(random, 14, model->config.vocab_size)};
  Runner cpu(model, MakeCpuBackend({.threads = 1, .profile = "cpu-portable-f32"}).value(), bucket);
  Runner cuda(model, Cuda(row().dense, row().processors), bucket);
  const std::vector<Answer> expected = cpu.Run(prompts), got = cuda.Run(prompts);
  for (size_t i = 0; i < prompts.size(); ++i) {
    EXPECT_LT(Difference(got[i].states, expected[i].states), 0.01) << i;
  }
}

const Int8Row kInt8Rows[] = {
    {.name = "GatedMlpBehindNorms"},
    {.name = "PlainMlpBeforeNorms", .order = NormOrder::kPost, .gated = false},
    {.name = "NormedQueries", .order = NormOrder::kQuery, .gated = false},
    {.name = "SumsOverAWideMlpInSegments", .gated = false, .intermediate = 1100, .processors = 4},
    {.name = "GatesJoinedForALibrary", .dense = {simt::SimtDense::kInvariant}},
    {.name = "Experts", .experts = true},
    {.name = "ExpertsAfterLayersOfALibrary",
     .dense = {simt::SimtDense::kInvariant},
     .experts = true},
};
SLUICE_TABLE(Int8OnCudaTable, kInt8Rows);

// Compares only the states: the head is in floats, and the library sums floats in another order.
TEST(Int8OnCuda, ALibraryChangesNoBitWhetherItServesOrIsRefused) {
  constexpr uint64_t kOfPrompts = 7;
  const auto model = RandomModel(Int8Config(NormOrder::kPre, /*gated=*/true), 5);
  const Bucket bucket{60, 3};
  std::mt19937_64 random(kOfPrompts);
  std::vector<std::vector<int32_t>> prompts;
  for (const int64_t length : {3, 14, 40}) {
    prompts.push_back(RandomTokens(random, length, model->config.vocab_size));
  }
  Runner own(model, Cuda(), bucket);
  const std::vector<Answer> expected = own.Run(prompts);
  for (const simt::SimtDense kind : {simt::SimtDense::kWorkspace, simt::SimtDense::kUnfinished}) {
    Runner library(model, Cuda({kind}), bucket);
    for (const std::vector<Answer>& got : {library.Run(prompts), library.Run(prompts, bucket)}) {
      for (size_t i = 0; i < got.size(); ++i) {
        EXPECT_EQ(got[i].states, expected[i].states)
            << "prompt " << i << ", algorithm " << static_cast<int>(kind) << ", seed "
            << kOfPrompts;
      }
    }
  }
}

std::string LoadError(const QuantizationConfig& quantization) {
  ModelConfig config = TinyConfig(1);
  config.quantization = quantization;
  return std::string(Cuda()->Load(RandomModel(config, 1)).status().message());
}

TEST(Int8OnCuda, RefusesModelsThatNeedACpu) {
  EXPECT_EQ(LoadError({.projections = Quantization::kInt8}), "");
  EXPECT_THAT(LoadError({.projections = Quantization::kInt4}),
              HasSubstr("int4 projections run only on a CPU"));
  EXPECT_THAT(LoadError({.projections = Quantization::kInt8, .head = true}),
              HasSubstr("an int8 head runs only on a CPU"));
  const auto plain = RandomModel(TinyConfig(1), 1, kernels::DType::kBF16);
  const TemporaryDirectory directory;
  const std::string down = "model.layers.0.mlp.down_proj.weight";
  WriteTestFile(directory.File("config.json"), ConfigJson(TinyConfig(1)));
  WriteStored(*plain, directory.path(), [&](std::vector<TensorBytes>& tensors) {
    AddKept(*plain, down, {1, 4}, tensors);
  });
  const auto kept = LoadModel("m", 1, directory.path());
  ASSERT_TRUE(kept.ok()) << kept.status();
  EXPECT_THAT(Cuda()->Load(*kept).status().ToString(),
              HasSubstr("tensor " + down + "_kept_channels: kept channels run only on a CPU"));
}

TEST(Int8OnCuda, RefusesRoutersAndMatricesOfExpertsThatAreStoredInInt8) {
  const std::string router = "model.layers.1.mlp.router.weight";
  ModelConfig config = Int8ExpertsConfig();
  config.quantization = {};
  const auto plain = RandomModel(config, 1, kernels::DType::kBF16);
  const auto error = [&](bool with_router) {
    const TemporaryDirectory directory;
    WriteTestFile(directory.File("config.json"), ConfigJson(config));
    WriteStored(*plain, directory.path(), [&](std::vector<TensorBytes>& tensors) {
      if (with_router) return;
      std::erase_if(tensors, [&](const TensorBytes& of) { return of.name.starts_with(router); });
      tensors.push_back(BytesOfBF16(router, plain->checkpoint.tensors().at(router)));
    });
    const auto stored = LoadModel("m", 1, directory.path());
    EXPECT_TRUE(stored.ok()) << stored.status();
    return stored.ok() ? std::string(Cuda()->Load(*stored).status().message()) : "";
  };
  EXPECT_EQ(error(true), "tensor " + router +
                             ": a router that is stored in int8 runs only on a CPU; serve the "
                             "model with device: cpu");
  EXPECT_THAT(error(false), HasSubstr("is stored quantised; the matrices of a position-wise layer "
                                      "or of experts must be stored in floats"));
}

}  // namespace
}  // namespace sluice::testing
