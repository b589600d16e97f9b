// The device that the kernels are tested on: the emulator or a GPU, with the same tests.
#pragma once

#include <cstdint>
#include <memory>

#include "engine/cuda/device.h"

namespace sluice {

// `seed` determines the emulator's order of blocks and threads.
std::unique_ptr<Device> MakeDeviceUnderTest(uint64_t seed);

// Returns whether the device is the emulator, for which tests choose smaller sizes.
bool Emulated();

}  // namespace sluice
