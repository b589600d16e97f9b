// Input channels that a layer in int8 leaves to floats.
//
// Beside a matrix NAME in int8, [out, in], and its scales, a checkpoint may have
//   NAME_kept_channels   I32 [kept], ascending input channels
//   NAME_kept            floats [out, kept], their weights
// The rows that enter the layer are then quantised without these channels, whose products are added
// in floats. What the matrix in int8 has in their columns counts for nothing.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/model/checkpoint.h"

namespace sluice {

struct LinearOp;
struct Model;

struct KeptChannels {
  std::vector<int32_t> channels;
  Tensor weights;  // [out, channels], if there are any
};

std::string NameOfKept(const std::string& weight);
std::string NameOfKeptChannels(const std::string& weight);

// Returns the kept channels of a layer whose weight has this shape, [out, in]; none if the
// checkpoint names none. Errors name the tensor.
absl::StatusOr<KeptChannels> FindKept(const Checkpoint& checkpoint, const std::string& weight,
                                      const std::vector<int64_t>& shape);

// Returns the kept channels of an op, or none if it is not stored in int8. They are unchecked: a
// backend refuses those that FindKept refuses.
std::vector<int32_t> KeptChannelsOf(const Model& model, const LinearOp& op);

}  // namespace sluice
