// Runs with a known amount of work. Their times give the peaks of this machine. Each runs on the
// calling thread and returns the amount of work; the caller measures the time.
#pragma once

#include <cstdint>

#include "kernels/cpu/profile.h"
#include "kernels/cpu/thread_pool.h"

namespace sluice {

// Multiplies and adds in registers with the profile's fastest instructions, in bf16 if the profile
// multiplies in bf16. Returns the number of floating-point operations.
double RunMultiplyAdds(kernels::Profile profile, int64_t steps);

// The same in int8, with the instructions of the profile's unit (Int8UnitOf). Returns the number of
// multiplications and additions of values.
double RunInt8MultiplyAdds(kernels::Profile profile, int64_t steps);

// Reads `bytes` from `begin` on in the same way as the kernels read panels, in several streams with
// the profile's widest loads. Requires that `begin` is aligned to a cache line. Returns the number
// of bytes read, at most 255 less than `bytes`.
double RunReads(kernels::Profile profile, const void* begin, int64_t bytes);

// Sums exponentials of a row that stays in the nearest cache, `rounds` times. Returns their number.
double RunExponentials(kernels::Profile profile, int64_t rounds);

// Starts all threads of the pool and waits for them: each thread gets one item and leaves it when
// all items have started.
void RunLaunch(kernels::ThreadPool* pool);

}  // namespace sluice
