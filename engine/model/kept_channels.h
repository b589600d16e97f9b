// Input channels that a layer in int8 computes in floats.
//
// In addition to a matrix NAME in int8, [out, in], and its scales, a checkpoint may have
//   NAME_kept_channels   I32 [kept], ascending input channels
//   NAME_kept            floats [out, kept], their weights
// The rows that enter the layer are then quantised without these channels, and the products of
// these channels are added in floats. The corresponding columns of the int8 matrix are ignored.
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

// Returns the kept channels of an op, or none if it is not stored in int8. They are not checked: a
// backend refuses the channels that FindKept refuses.
std::vector<int32_t> KeptChannelsOf(const Model& model, const LinearOp& op);

}  // namespace sluice
