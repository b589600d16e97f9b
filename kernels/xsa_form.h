// The forms of exclusive self attention (arXiv 2603.09078); kernels/cpu/attention.h has the
// formulas.
#pragma once

namespace sluice::kernels {

enum class XsaForm { kOff, kNorm, kSquared };

}  // namespace sluice::kernels
