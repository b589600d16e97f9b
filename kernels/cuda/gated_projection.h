// The two products of a gated MLP and its activation, in one kernel for few rows:
//
//   out[r, :] = f(x[r, :] W_gate[m(r)] + b_gate[m(r)]) * (x[r, :] W_up[m(r)] + b_up[m(r)])
//
// A block has the sums of the same rows and columns of both products (kernels/cuda/few_rows.h), so
// they are not written to memory. Each sum is the running sum of kernels/cuda/projection.h. Both
// products are rounded to T before f. So the bits are the same as with a call of Project for each
// product.
#pragma once

#include "kernels/cuda/projection.h"

namespace sluice::kernels::cuda {

// Computes up.out as Project(gate) and then Project(up) do, if the rows are so few that the kernel
// for few rows is the fastest, and if the alignment is the one for which Project is fast. gate.out
// is then left unchanged. Otherwise returns false and launches nothing.
//
// Requires that both products have the same rows, k, n and tiles, that neither accumulates, and
// that only `up` has an activation, whose input is gate.out.
template <typename T, typename Operand>
bool ProjectGated(Stream& stream, const ProjectionArgs<T, T, Operand>& gate,
                  const ProjectionArgs<T, T, Operand>& up);

// The same for weights in slices for warpgroups (kernels/cuda/weight_layout.h).
bool ProjectGatedOfGroups(Stream& stream, const ProjectionArgs<BFloat16>& gate,
                          const ProjectionArgs<BFloat16>& up);

}  // namespace sluice::kernels::cuda
