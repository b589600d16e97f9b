// The last steps: logits of the sampled rows, scored or sampled, and states.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/cpu/step.h"
#include "kernels/cpu/gemm.h"

namespace sluice {

// What a head has beside its matrix, as HeadOp says.
struct HeadFinish {
  std::vector<float> bias;  // [vocab] or empty
  float soft_cap = 0;       // 0: none
};

// `head` is [hidden -> vocab]; `in` holds the rows after the last norm.
std::unique_ptr<const Step> MakeHeadStep(BufferId in, kernels::PackedWeights head,
                                         HeadFinish finish);

// The states of the rows whose states are wanted, copied out of `in`, which is `width` wide.
std::unique_ptr<const Step> MakeStateStep(BufferId in, int64_t width);

}  // namespace sluice
