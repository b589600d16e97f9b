// The device that runs the kernels' tests: the emulator or a GPU, with the same tests.
#pragma once

#include <cstdint>
#include <memory>

#include "engine/cuda/device.h"

namespace sluice {

// `seed` determines the emulator's order of blocks and threads.
std::unique_ptr<Device> MakeDeviceUnderTest(uint64_t seed);

// Returns whether the device is the emulator. Tests choose smaller sizes for it.
bool Emulated();

}  // namespace sluice
