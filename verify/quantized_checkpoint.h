// Writes a checkpoint of compressed-tensors in int8.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "engine/model/checkpoint.h"

namespace sluice::verify {

// Factors of a tensor's values. A row is of the last dimension but one, a column of the last; a
// vector has rows. Empty if there are none.
struct ScalesOfTensor {
  std::vector<float> by_row;
  std::vector<float> by_column;
};
using TensorScales = std::map<std::string, ScalesOfTensor>;

// Tensors that are written in int8. The value lists the tensor's input channels that stay floats.
using QuantizedTensors = std::map<std::string, std::vector<int32_t>>;

// Writes config.json and model.safetensors to the directory `out`: the tensors `quantized`, [out,
// in], in int8 and all others as they are stored, each times its scales. Copies the other files of
// the model. Returns AlreadyExists if `out` has a model, and errors that name the file.
absl::Status WriteQuantizedCheckpoint(const Checkpoint& checkpoint,
                                      const std::string& model_directory, const std::string& out,
                                      const TensorScales& scales,
                                      const QuantizedTensors& quantized);

}  // namespace sluice::verify
