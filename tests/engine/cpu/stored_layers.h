// Shared by the tests of checkpoints that store quantised layers.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "engine/model/model.h"
#include "tests/engine/cpu/runner.h"
#include "tests/support/checkpoint_writer.h"

namespace sluice::testing {

// Returns column `col` of a matrix of the layer, as the checkpoint stores it.
inline std::vector<float> ColumnOf(const Model& model, const LinearOp& op, int64_t matrix,
                                   int64_t col) {
  const bool own = matrix > 0 && !op.more_matrices.empty();  // whether it has a tensor of its own
  const std::string& name = own ? op.more_matrices[matrix - 1] : op.weight.name;
  const Tensor tensor = model.checkpoint.Find(name, op.weight.shape).value();
  const int64_t stacked = own ? 0 : matrix;
  const int64_t k = model.graph.buffers[op.in].width, n = model.graph.buffers[op.out].width;
  std::vector<float> values;
  for (int64_t row = 0; row < k; ++row) {
    const int64_t at = op.layout == MatrixLayout::kInOut ? row * n + col : col * k + row;
    values.push_back(kernels::LoadAsFloat(tensor.data, tensor.dtype, stacked * k * n + at));
  }
  return values;
}

// Returns a tensor of bf16 unchanged.
inline TensorBytes BytesOfBF16(const std::string& name, const Tensor& tensor) {
  const auto* const data = static_cast<const char*>(tensor.data);
  const int64_t bytes = tensor.elements() * kernels::DTypeBytes(kernels::DType::kBF16);
  return {name, "BF16", tensor.shape, {data, data + bytes}};
}

inline TensorBytes& Named(std::vector<TensorBytes>& tensors, const std::string& name) {
  return *std::ranges::find(tensors, name, &TensorBytes::name);
}

inline void Remove(std::vector<TensorBytes>& tensors, const std::string& name) {
  std::erase_if(tensors, [&](const TensorBytes& tensor) { return tensor.name == name; });
}

// Returns the status of loading the model of a directory on a CPU.
inline std::string LoadStatus(const std::string& directory) {
  const auto loaded = LoadModel("m", 1, directory);
  if (!loaded.ok()) return loaded.status().ToString();
  const auto backend = MakeBackendUnderTest({.threads = 1, .profile = "cpu-portable-f32"});
  return backend->Load(*loaded).status().ToString();
}

}  // namespace sluice::testing
