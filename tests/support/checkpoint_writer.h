// Writes safetensors files and random models for tests.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/model/config.h"
#include "engine/model/model.h"
#include "kernels/dtype.h"

namespace sluice::testing {

struct TensorBytes {
  std::string name;
  std::string dtype;  // as in the header
  std::vector<int64_t> shape;
  std::string data;
};

// Returns a file with `header` unchanged, its size before it and `data` after it.
std::string SafetensorsFile(const std::string& header, const std::string& data);
// Returns a valid file.
std::string SafetensorsFile(const std::vector<TensorBytes>& tensors);

// Returns a small model whose vectors have different sizes; tests change the fields that they need.
ModelConfig TinyConfig(int64_t layers = 2);
// Returns the same model as SluiceForCausalLM, whose config states every field.
ModelConfig TinySluiceConfig(int64_t layers = 2);

// Returns the config.json of a Llama or Sluice model. For a Llama, attention_bias is qkv_bias, and
// output_bias must be equal.
std::string ConfigJson(const ModelConfig& config);

// Writes config.json and model.safetensors with every tensor of the config's graph, with random
// values such that activations and logits stay near 1.
void WriteModel(const ModelConfig& config, uint64_t seed, kernels::DType dtype,
                const std::string& directory);

// Writes a model to a directory that is removed when the call ends, and loads it.
std::shared_ptr<const Model> RandomModel(const ModelConfig& config, uint64_t seed,
                                         kernels::DType dtype = kernels::DType::kF32);

// Writes a folder as PEFT does, with random matrices for the embeddings and most dense layers of
// the model. An adapter changes the logits by about a tenth.
void WriteAdapter(const Model& model, uint64_t seed, int64_t rank, kernels::DType dtype,
                  const std::string& directory);

// Returns RandomModel with adapters 0, 1, .. of different ranks, in f32 and bf16 by turns.
std::shared_ptr<const Model> RandomModelWithAdapters(const ModelConfig& config, uint64_t seed,
                                                     kernels::DType dtype, int adapters,
                                                     const ModelOptions& options = {});

}  // namespace sluice::testing
