#include "verify/quantize.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <functional>
#include <limits>
#include <map>
#include <random>
#include <span>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "engine/cpu/cpu_backend.h"
#include "engine/model/safetensors.h"
#include "kernels/reference/int8.h"
#include "tests/support/checkpoint_writer.h"
#include "tests/verify/quantize_fixture.h"
#include "verify/against_f32.h"
#include "verify/int8_rows.h"
#include "verify/smoothing.h"

namespace sluice::verify {
namespace {

using sluice::testing::RandomModel;
using sluice::testing::TinyConfig;
using sluice::testing::TinySluiceConfig;
using Producer = SmoothingGroup::Producer;
using ::testing::HasSubstr;

TEST_F(QuantizeTest, SmoothingLowersTheErrorThatOutliersCause) {
  Write(PlainConfig());
  PlantOutliers(model());
  const auto plain = QuantizeModel(model(), {.text = text(), .out = out("plain"), .smooth = false});
  const auto smooth = QuantizeModel(model(), {.text = text(), .out = out("smooth")});
  ASSERT_TRUE(plain.ok() && smooth.ok()) << plain.status() << smooth.status();
  EXPECT_THAT(*smooth, HasSubstr("14 of 14 layers in int8"));
  EXPECT_LT(Difference(out("smooth")), Difference(out("plain")) / 2);
  const auto backend = MakeCpuBackend({.threads = 1, .profile = "cpu-portable-f32"});
  const auto loaded = (*backend)->Load(LoadModel("m", 1, out("smooth")).value());
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ((*loaded)->profile(), "cpu-portable-f32-int8");
  EXPECT_THAT(VerifyAgainstF32(out("smooth"), text(), {.threads = 1}, {}).status().ToString(),
              HasSubstr("--reference"));
  const auto verified = VerifyAgainstF32(out("smooth"), text(), {.threads = 1}, {}, model());
  EXPECT_TRUE(verified.ok()) << verified.status();
}

// Scales are powers of two, so they change no bit of the outputs if no layer is quantised.
TEST_F(QuantizeTest, ScalesOnlyChangeTheErrorOfInt8) {
  for (const kernels::DType dtype :
       {kernels::DType::kF32, kernels::DType::kF16, kernels::DType::kBF16}) {
    SCOPED_TRACE(static_cast<int>(dtype));
    Write(PlainConfig(), dtype);
    if (dtype != kernels::DType::kF16) PlantOutliers(model());
    const std::string kept = out("kept" + std::to_string(static_cast<int>(dtype)));
    const auto report = QuantizeModel(model(), {.text = text(), .out = kept, .keep_above = 1e-9});
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_THAT(*report, HasSubstr("0 of 14 layers in int8"));
    const auto before = LoadModel("m", 1, model()), after = LoadModel("m", 1, kept);
    int changed = 0;
    for (const auto& [name, tensor] : (*before)->checkpoint.tensors()) {
      const Tensor& other = (*after)->checkpoint.tensors().at(name);
      for (int64_t i = 0; i < tensor.elements(); ++i) {
        const float a = kernels::LoadAsFloat(tensor.data, tensor.dtype, i);
        changed += a != kernels::LoadAsFloat(other.data, other.dtype, i) ? 1 : 0;
      }
    }
    EXPECT_GT(changed, 0) << "no scale was moved";
    const std::vector<TextOutputs> a = Outputs(model()), b = Outputs(kept);
    for (size_t i = 0; i < a.size(); ++i) {
      EXPECT_EQ(a[i].logprobs, b[i].logprobs);
      EXPECT_EQ(a[i].embedding, b[i].embedding);
    }
  }
}

TEST_F(QuantizeTest, LayersAboveTheBoundAreKept) {
  Write(PlainConfig());
  PlantOutliers(model());
  const QuantizeOptions options = {
      .text = text(), .out = out("some"), .smooth = false, .keep_above = 0.42};
  const auto report = QuantizeModel(model(), options);
  ASSERT_TRUE(report.ok()) << report.status();
  const auto loaded = LoadModel("m", 1, out("some"));
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  const std::string config = ReadTestFile(out("some") + "/config.json");
  int kept = 0, quantized = 0;
  std::istringstream lines(*report);
  for (std::string line; std::getline(lines, line);) {
    const std::string name = line.substr(0, line.find(' '));
    if (!name.ends_with(".weight")) continue;
    const bool stays = line.ends_with("kept");
    ++(stays ? kept : quantized);
    EXPECT_EQ((*loaded)->checkpoint.IsInt8(name), !stays) << line;
    const std::string layer = name.substr(0, name.rfind('.'));
    EXPECT_EQ(config.find("\"" + layer + "\"") != config.npos, stays) << line;
  }
  EXPECT_GT(kept, 0) << *report;
  EXPECT_GT(quantized, 0) << *report;
}

TEST_F(QuantizeTest, ErrorsNameTheFile) {
  Write(PlainConfig());
  const auto error = [&](const std::string& text, const std::string& out) {
    return QuantizeModel(model(), {.text = text, .out = out}).status().ToString();
  };
  EXPECT_THAT(error(out("none.txt"), out("a")), HasSubstr("none.txt: No such file or directory"));
  EXPECT_THAT(error(text(), model()), HasSubstr("model: already contains a model"));
  ASSERT_EQ(error(text(), out("a")), "OK");
  EXPECT_THAT(QuantizeModel(out("a"), {.text = text(), .out = out("b")}).status().ToString(),
              HasSubstr("a: is already quantised"));
}

TEST_F(QuantizeTest, AReferenceMustHaveTheSameInputsAndOutputs) {
  Write(PlainConfig());
  const auto error = [&](const std::function<void(ModelConfig&)>& change) {
    ModelConfig config = PlainConfig();
    change(config);
    std::filesystem::create_directories(out("other"));
    sluice::testing::WriteModel(config, 9, kernels::DType::kF32, out("other"));
    return VerifyAgainstF32(model(), text(), {.threads = 1}, {}, out("other")).status().ToString();
  };
  EXPECT_EQ(error([](ModelConfig& config) { config.intermediate_size /= 2; }), "OK");
  EXPECT_THAT(error([](ModelConfig& config) { config.vocab_size = 40; }),
              HasSubstr("other: its vocab_size is 40, not 61"));
  EXPECT_THAT(error([](ModelConfig& config) { config.max_positions = 8; }),
              HasSubstr("other: its max_positions is 8"));
  EXPECT_THAT(error([](ModelConfig& config) { config.hidden_size *= 2; }),
              HasSubstr("other: its size of embeddings is"));
  EXPECT_THAT(
      VerifyAgainstF32(model(), text(), {.threads = 1}, {}, out("none")).status().ToString(),
      HasSubstr("none: "));
}

TEST_F(QuantizeTest, AFolderInsideTheModelsFolderIsRefused) {
  Write(PlainConfig());
  for (const std::string& inside : {model() + "/int8", model() + "/a/../b/int8"}) {
    EXPECT_THAT(QuantizeModel(model(), {.text = text(), .out = inside}).status().ToString(),
                HasSubstr("is inside the model's folder"));
    EXPECT_FALSE(std::filesystem::exists(inside));
  }
  EXPECT_TRUE(QuantizeModel(model(), {.text = text(), .out = model() + "-int8"}).ok());
}

// A folder with the file's name makes the write of the file fail.
TEST_F(QuantizeTest, AWriteThatFailsCanBeRepeated) {
  Write(PlainConfig());
  WriteTestFile(model() + "/notes.txt", "of the model\n");
  for (const std::string file : {"model.safetensors", "config.json"}) {
    SCOPED_TRACE(file);
    const std::string to = out("after_" + file), obstacle = to + "/" + file + ".partial";
    std::filesystem::create_directories(obstacle + "/full");
    const QuantizeOptions options = {.text = text(), .out = to, .smooth = false};
    EXPECT_THAT(QuantizeModel(model(), options).status().ToString(),
                HasSubstr(to + "/" + file + ": cannot be written"));
    EXPECT_FALSE(LoadModel("m", 1, to).ok());
    std::filesystem::remove_all(obstacle);
    WriteTestFile(to + "/notes.txt", "of the first try\n");
    EXPECT_TRUE(QuantizeModel(model(), options).ok());
    EXPECT_TRUE(LoadModel("m", 1, to).ok());
    EXPECT_EQ(ReadTestFile(to + "/notes.txt"), "of the model\n");
  }
}

// A NaN error is never the least error and never below the bound.
TEST_F(QuantizeTest, ALayerThatIsNotFiniteIsKeptAndTakesNoScales) {
  Write(PlainConfig());
  PlantOutliers(model());
  const std::string path = model() + "/model.safetensors", last = "layers.1.mlp.down_proj.weight";
  std::string file = ReadTestFile(path);
  const auto entries = ParseSafetensors(file);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const SafetensorsEntry& entry : *entries) {
    if (!entry.name.ends_with(last)) continue;
    std::memcpy(&file[entry.data.data() - file.data()], &nan, sizeof(nan));
  }
  WriteTestFile(path, file);
  const auto report = QuantizeModel(model(), {.text = text(), .out = out("nan"), .keep_above = 1});
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_THAT(*report, ::testing::ContainsRegex(last + " +nan +nan  kept"));
  EXPECT_THAT(*report, HasSubstr("13 of 14 layers in int8"));
}

TEST(QuantizeRowsTest, EqualsTheReference) {
  constexpr uint64_t kSeed = 11;
  std::mt19937_64 random(kSeed);
  SCOPED_TRACE(::testing::Message() << "seed " << kSeed);
  constexpr int64_t kRows = 40, kWidth = 33;
  std::vector<float> x(kRows * kWidth);
  for (float& value : x) value = std::normal_distribution<float>(0, 2)(random);
  x[3 * kWidth + 5] = std::numeric_limits<float>::quiet_NaN();
  x[4 * kWidth] = -std::numeric_limits<float>::infinity();
  std::fill_n(&x[5 * kWidth], kWidth, 0.0f);
  std::fill_n(&x[6 * kWidth], kWidth, 0x1p-120f);
  const Int8Rows rows = QuantizeRows(x, kWidth);
  for (int64_t r = 0; r < kRows; ++r) {
    const auto expected = kernels::reference::Quantize(std::span(x).subspan(r * kWidth, kWidth));
    EXPECT_EQ(std::isnan(rows.scales[r]), std::isnan(expected.scale)) << "row " << r;
    if (std::isnan(expected.scale)) continue;
    EXPECT_EQ(rows.scales[r], expected.scale) << "row " << r;
    EXPECT_EQ(std::vector<int8_t>(&rows.values[r * kWidth], &rows.values[r * kWidth] + kWidth),
              expected.values)
        << "row " << r;
  }
}

TEST(QuantizeRowsTest, KeptChannelsDoNotAffectTheScale) {
  const Int8Rows rows =
      QuantizeRows(std::vector<float>{-900, 2, -1, 0, 0, 5, 0, 0}, 4, std::vector<int32_t>{0, 1});
  EXPECT_EQ(rows.scales, (std::vector<float>{1.0f / 127, 0}));
  EXPECT_EQ(rows.values, (std::vector<int8_t>{-127, 127, -127, 0, 0, 0, 0, 0}));
}

// Returns the number of groups by producer.
std::map<Producer, int> Producers(const ModelConfig& config) {
  std::map<Producer, int> counts;
  const auto model = RandomModel(config, 3);
  for (const SmoothingGroup& group : FindSmoothingGroups(*model)) ++counts[group.producer];
  return counts;
}

TEST(FindSmoothingGroups, FindsTheProducersThatTakeTheInverseScales) {
  EXPECT_EQ(
      Producers(PlainConfig()),
      (std::map<Producer, int>{{Producer::kNorm, 4}, {Producer::kUp, 2}, {Producer::kValue, 2}}));
  ModelConfig xsa = PlainConfig();
  xsa.xsa.layers[1] = true;
  EXPECT_EQ(
      Producers(xsa),
      (std::map<Producer, int>{
          {Producer::kNone, 1}, {Producer::kNorm, 4}, {Producer::kUp, 2}, {Producer::kValue, 1}}));
  // With kPost, the output of a norm after a branch is also the residual.
  ModelConfig post = TinySluiceConfig(2);
  post.norm.order = NormOrder::kPost;
  post.gated_mlp = false;
  EXPECT_EQ(Producers(post),
            (std::map<Producer, int>{{Producer::kNone, 6}, {Producer::kValue, 2}}));
  // Projections that also make tables of relative positions take no scales.
  ModelConfig disentangled = TinySluiceConfig(2);
  disentangled.kv_heads = disentangled.heads;
  disentangled.causal = false;
  disentangled.disentangled = {.span = 6};
  EXPECT_EQ(
      Producers(disentangled),
      (std::map<Producer, int>{
          {Producer::kNone, 2}, {Producer::kNorm, 2}, {Producer::kUp, 2}, {Producer::kValue, 2}}));
  disentangled.disentangled.shared = false;
  EXPECT_EQ(
      Producers(disentangled),
      (std::map<Producer, int>{{Producer::kNorm, 4}, {Producer::kUp, 2}, {Producer::kValue, 2}}));
}

}  // namespace
}  // namespace sluice::verify
