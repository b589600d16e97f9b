// Dialects of exclusive self attention (arXiv 2603.09078); formulas in kernels/cpu/attention.h.
#pragma once

namespace sluice::kernels {

enum class XsaForm { kOff, kNorm, kSquared };

}  // namespace sluice::kernels
