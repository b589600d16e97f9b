#include "engine/cuda/emulator/simt_device.h"
#include "tests/kernels/cuda/device_under_test.h"

namespace sluice {

std::unique_ptr<Device> MakeDeviceUnderTest(uint64_t seed) {
  return simt::MakeSimtDevice({.seed = seed});
}
bool Emulated() { return true; }

}  // namespace sluice
