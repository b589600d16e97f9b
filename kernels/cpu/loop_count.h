// Counts the loops that kernels run, for tests of the number of kernels.
#pragma once

#include <cstdint>

namespace sluice::kernels {

// Returns the number of loops that the calling thread has started so far: its calls of
// ThreadPool::ParallelFor with n > 0, on any pool.
int64_t LoopsOfThisThread();

}  // namespace sluice::kernels
