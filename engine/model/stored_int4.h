// Layers that a checkpoint stores in int4. For a layer NAME.weight, [out, in], the checkpoint has
//
//   compressed-tensors
//     NAME.weight_packed [out, in / 8], eight codes along `in` a word
//     NAME.weight_scale [out, groups]
//     NAME.weight_zero_point [out / 8, groups], along `out`
//   AWQ
//     NAME.qweight [in, out / 8], along `out`, in the order 0, 2, 4, 6, 1, 3, 5, 7
//     NAME.qzeros [groups, out / 8], the same
//     NAME.scales [groups, out]
//   GPTQ
//     NAME.qweight [in / 8, out], along `in`
//     NAME.qzeros [groups, out / 8], along `out`; in version 1 each word less 0x11111111
//     NAME.scales [groups, out]
//     NAME.g_idx [in], the group of each row
//
// The lowest bits of a word come first. A weight is (code - zero) * scale. The rows of a group must
// be consecutive: another order ("act-order") is refused.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/model/checkpoint.h"
#include "engine/model/quantization.h"

namespace sluice {

// Returns whether the checkpoint has the codes of the layer whose weight has this name.
bool IsStoredInInt4(const Checkpoint& checkpoint, const StoredQuantization& stored,
                    const std::string& weight);

// In the format of kernels::Int4Source, for `rows` outputs from `first` on. `group` is at most 128:
// scales of larger groups are repeated.
struct StoredInt4 {
  int64_t group = 0;
  std::vector<uint8_t> codes;  // [rows, in]
  std::vector<float> scales;   // [rows, ceil(in / group)]
  std::vector<uint8_t> zeros;  // like scales, or empty if all are 8
};

// Reads rows [first, first + rows) of a layer of [out, in]. Errors name tensor and shape.
absl::StatusOr<StoredInt4> ReadStoredInt4(const Checkpoint& checkpoint,
                                          const StoredQuantization& stored,
                                          const std::string& weight, int64_t out, int64_t in,
                                          int64_t first, int64_t rows);

}  // namespace sluice
