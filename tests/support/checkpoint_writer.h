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
  std::string dtype;  // as the header names it
  std::vector<int64_t> shape;
  std::string data;
};

// `header` as it is, with its size before it and `data` after it.
std::string SafetensorsFile(const std::string& header, const std::string& data);
// A correct file.
std::string SafetensorsFile(const std::vector<TensorBytes>& tensors);

// A small model with every vector of its size; tests change what they need.
ModelConfig TinyConfig(int64_t layers = 2);
// The same as SluiceForCausalLM, whose config says everything.
ModelConfig TinySluiceConfig(int64_t layers = 2);

// Of a Llama or a Sluice model. A Llama's attention_bias is its qkv_bias, which output_bias must
// equal.
std::string ConfigJson(const ModelConfig& config);

// Writes config.json and model.safetensors with every tensor of the config's graph, drawn so that
// activations and logits stay near 1.
void WriteModel(const ModelConfig& config, uint64_t seed, kernels::DType dtype,
                const std::string& directory);

// WriteModel to a directory that lives as long as this call, then LoadModel.
std::shared_ptr<const Model> RandomModel(const ModelConfig& config, uint64_t seed,
                                         kernels::DType dtype = kernels::DType::kF32);

}  // namespace sluice::testing
