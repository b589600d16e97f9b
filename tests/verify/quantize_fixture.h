// Shared by the tests of checkpoints that are quantised with a sample of texts.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <filesystem>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "engine/model/safetensors.h"
#include "tests/support/checkpoint_writer.h"
#include "tests/support/golden_file.h"
#include "tests/support/temporary_directory.h"
#include "verify/agreement.h"

namespace sluice::verify {

// Returns a Llama without per-layer windows, XSA and position-wise projections.
inline ModelConfig PlainConfig() {
  ModelConfig config = sluice::testing::TinyConfig(2);
  config.hidden_size = 64;
  config.heads = 8;
  config.qkv_bias = config.output_bias = config.mlp_bias = true;
  return config;
}

// Makes some features of the norms' outputs, of values and of `up` large, and the matching weights
// small. The model's outputs stay the same, but its int8 outputs change much.
inline void PlantOutliers(const std::string& directory) {
  const std::string path = directory + "/model.safetensors";
  const std::string file = ReadTestFile(path);
  std::vector<sluice::testing::TensorBytes> tensors;
  const auto entries = ParseSafetensors(file);
  for (const SafetensorsEntry& entry : *entries) {
    const bool bf16 = entry.dtype == "BF16";
    std::vector<float> values(entry.data.size() / (bf16 ? 2 : 4));
    kernels::ConvertToFloat(entry.data.data(), bf16 ? kernels::DType::kBF16 : kernels::DType::kF32,
                            0, std::ssize(values), values.data());
    const auto is = [&](const char* name) { return entry.name.find(name) != std::string::npos; };
    const bool norm = is("layernorm"), up = is("up_proj"), value = is("v_proj");
    const bool reader = is("q_proj") || is("k_proj") || is("gate_proj") || up || value;
    const bool after = is("o_proj") || is("down_proj");
    const int64_t columns = entry.shape.back();
    const bool vector = entry.shape.size() == 1;
    for (int64_t i = 0; i < std::ssize(values); ++i) {
      const int64_t column = i % columns, row = vector ? i : i / columns;
      if (norm && column % 16 == 3) values[i] *= 128.0f;
      if (!vector && reader && column % 16 == 3) values[i] *= 0x1p-7f;
      if ((up || value) && row % 8 == 5) values[i] *= 128.0f;
      if (!vector && after && column % 8 == 5) values[i] *= 0x1p-7f;
    }
    std::string data;
    for (const float number : values) {
      const auto bits = std::bit_cast<uint32_t>(number);  // bf16 is the upper half
      data.append(reinterpret_cast<const char*>(&bits) + (bf16 ? 2 : 0), bf16 ? 2 : 4);
    }
    tensors.push_back({entry.name, entry.dtype, entry.shape, std::move(data)});
  }
  WriteTestFile(path, sluice::testing::SafetensorsFile(tensors));
}

class QuantizeTest : public ::testing::Test {
 protected:
  QuantizeTest() {
    std::mt19937_64 random(4);
    std::string lines;
    for (int i = 0; i < 24; ++i) {
      for (int j = 0; j < 30; ++j) lines += std::to_string(random() % 61) + " ";
      lines += "\n";
    }
    WriteTestFile(text(), lines);
  }

  std::string model() const { return directory_.path() + "/model"; }
  std::string text() const { return directory_.path() + "/texts.txt"; }
  std::string out(const std::string& name) const { return directory_.path() + "/" + name; }

  void Write(const ModelConfig& config, kernels::DType dtype = kernels::DType::kF32) {
    std::filesystem::create_directories(model());
    sluice::testing::WriteModel(config, 9, dtype, model());
  }

  // Returns the model's outputs for the texts.
  std::vector<TextOutputs> Outputs(const std::string& directory) {
    const auto loaded = LoadModel("m", 1, directory);
    EXPECT_TRUE(loaded.ok()) << loaded.status();
    const auto texts = ReadTexts(**loaded, text());
    return ComputeOutputs(*loaded, *texts, {.threads = 1, .profile = "cpu-portable-f32"}).value();
  }

  // Returns the mean difference of log-probabilities between a model and its original.
  double Difference(const std::string& directory) {
    const auto loaded = LoadModel("m", 1, model());
    return Compare(*ReadTexts(**loaded, text()), Outputs(model()), Outputs(directory)).tokens->mean;
  }

  const TemporaryDirectory directory_;
};

}  // namespace sluice::verify
