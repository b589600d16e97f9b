#include "engine/cuda/cuda_device.h"

#include "tests/kernels/cuda/device_under_test.h"

namespace sluice {

std::unique_ptr<Device> MakeDeviceUnderTest(uint64_t) { return MakeCudaDevice(0).value(); }
bool Emulated() { return false; }

}  // namespace sluice
