// Models in int8 for the tests of all backends.
#pragma once

#include <algorithm>
#include <functional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "engine/model/kept_channels.h"
#include "engine/model/model.h"
#include "kernels/reference/int8.h"
#include "tests/engine/cpu/stored_layers.h"
#include "tests/support/checkpoint_writer.h"
#include "tests/support/temporary_directory.h"

namespace sluice::testing {

// Returns a model with every kind of projection that reads its own rows or the rows of another op.
inline ModelConfig Int8Config(NormOrder order, bool gated) {
  ModelConfig config = TinySluiceConfig(2);
  config.norm.kind = NormKind::kLayer;
  config.norm.bias = true;
  config.norm.order = order;
  config.gated_mlp = gated;
  config.qkv_bias = config.output_bias = config.mlp_bias = true;
  config.position_wise.layers[static_cast<int>(Projection::kUp)] = {false, true};
  config.position_wise.max_positions = config.max_positions;
  config.position_wise.bias = PositionWiseBias::kPositionFeature;
  config.quantization.projections = Quantization::kInt8;
  return config;
}

// Returns a model with experts in the second layer.
inline ModelConfig Int8ExpertsConfig() {
  ModelConfig config = TinySluiceConfig(2);
  config.experts = {.count = 5, .chosen = 2, .width = 37, .layers = {false, true}};
  config.quantization.projections = Quantization::kInt8;
  return config;
}

// Writes the tensors of a model, with its int8 layers in the format of compressed-tensors. `change`
// may edit them.
inline void WriteStored(const Model& model, const std::string& directory,
                        const std::function<void(std::vector<TensorBytes>&)>& change = nullptr) {
  std::vector<TensorBytes> tensors;
  const auto is_layer = [&](const std::string& name) {
    return std::ranges::any_of(model.graph.ops, [&](const GraphOp& op) {
      const auto* const linear = std::get_if<LinearOp>(&op);
      return linear != nullptr && linear->weight.name == name;
    });
  };
  for (const auto& [name, tensor] : model.checkpoint.tensors()) {
    if (!is_layer(name)) {
      tensors.push_back(BytesOfBF16(name, tensor));
      continue;
    }
    const int64_t out = tensor.shape[0], in = tensor.shape[1];
    TensorBytes values{name, "I8", tensor.shape, ""}, scales{name + "_scale", "F32", {out, 1}, ""};
    std::vector<float> row(in);
    for (int64_t r = 0; r < out; ++r) {
      kernels::ConvertToFloat(tensor.data, tensor.dtype, r * in, in, row.data());
      const kernels::reference::Quantized quantized = kernels::reference::Quantize(row);
      values.data.append(quantized.values.begin(), quantized.values.end());
      scales.data.append(reinterpret_cast<const char*>(&quantized.scale), sizeof(float));
    }
    tensors.push_back(std::move(values));
    tensors.push_back(std::move(scales));
  }
  if (change) change(tensors);
  WriteTestFile(directory + "/model.safetensors", SafetensorsFile(tensors));
}

// Adds kept channels to a layer of a model that WriteStored writes.
inline void AddKept(const Model& model, const std::string& name,
                    const std::vector<int32_t>& channels, std::vector<TensorBytes>& tensors) {
  const Tensor& weight = model.checkpoint.tensors().at(name);
  const int64_t out = weight.shape[0], in = weight.shape[1], kept = std::ssize(channels);
  TensorBytes values{NameOfKept(name), "F32", {out, kept}, ""};
  for (int64_t row = 0; row < out; ++row) {
    for (const int32_t channel : channels) {
      const float value = kernels::LoadAsFloat(weight.data, weight.dtype, row * in + channel);
      values.data.append(reinterpret_cast<const char*>(&value), sizeof(value));
    }
  }
  const auto* const bytes = reinterpret_cast<const char*>(channels.data());
  tensors.push_back(
      {NameOfKeptChannels(name), "I32", {kept}, {bytes, channels.size() * sizeof(int32_t)}});
  tensors.push_back(std::move(values));
}

}  // namespace sluice::testing
