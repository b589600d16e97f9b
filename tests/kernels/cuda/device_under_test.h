// The device that the kernels are tested on: the emulator, or a GPU. The tests are the same.
#pragma once

#include <cstdint>
#include <memory>

#include "engine/cuda/device.h"

namespace sluice {

// `seed` is of the emulator's order of blocks and threads.
std::unique_ptr<Device> MakeDeviceUnderTest(uint64_t seed);

}  // namespace sluice
