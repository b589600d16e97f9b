// What Dense::Create needs to know of its oneDNN implementation.
#pragma once

#include "kernels/cpu/dense.h"

namespace sluice::kernels {

// True when each row's bits are the same alone and in every block size that Run cuts rows into.
bool RowsIndependent(const Context& context, const Dense& dense);

}  // namespace sluice::kernels
