// The last step: logits of the sampled rows, scored or sampled.
#pragma once

#include <memory>

#include "engine/cpu/step.h"
#include "kernels/cpu/dense.h"

namespace sluice {

// `head` is [hidden -> vocab]; `in` holds the rows after the last norm.
std::unique_ptr<const Step> MakeHeadStep(BufferId in, std::unique_ptr<kernels::Dense> head);

}  // namespace sluice
