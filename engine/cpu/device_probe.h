// Measures what the cost model knows of this machine's processor.
#pragma once

#include "engine/einsum/device_description.h"
#include "kernels/cpu/context.h"

namespace sluice {

// Returns medians of short runs on the threads of the pool, which take some 100 ms and 128 MiB in
// all. Multiply-adds are those of the profile in f32.
einsum::DeviceDescription ProbeDevice(const kernels::Context& context);

}  // namespace sluice
