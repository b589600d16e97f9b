// A row's logit edits in place, and back; what they mean is said at LogitEdits in sample.h.
#pragma once

#include "kernels/sampling.h"

namespace sluice::kernels {

// Edits x[0, n), all but `allowed`, in time proportional to the edits. Keeps what it overwrites in
// saved[n], by token. False when a logit overflows upwards.
//   x, saved: [n], saved may be unwritten memory
bool ApplyEdits(const LogitEdits& edits, float* x, float* saved);

// Takes the same edits back, bit for bit.
void UndoEdits(const LogitEdits& edits, const float* saved, float* x);

}  // namespace sluice::kernels
