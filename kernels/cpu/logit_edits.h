// Applies a row's logit edits in place and undoes them. LogitEdits in kernels/sampling.h defines
// their meaning.
#pragma once

#include "kernels/sampling.h"

namespace sluice::kernels {

// Edits x[0, n), except for `allowed`, in time proportional to the number of edits. Saves the
// values it overwrites in saved[n], by token. Returns false if a logit overflows upwards.
//   x, saved: [n]; saved may be uninitialised memory
bool ApplyEdits(const LogitEdits& edits, float* x, float* saved);

// Undoes the same edits, bit for bit.
void UndoEdits(const LogitEdits& edits, const float* saved, float* x);

}  // namespace sluice::kernels
