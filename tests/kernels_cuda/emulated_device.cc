#include "tests/kernels_cuda/device_under_test.h"
#include "tests/simt/simt_device.h"

namespace sluice {

std::unique_ptr<Device> MakeDeviceUnderTest(uint64_t seed) {
  return simt::MakeSimtDevice({.seed = seed});
}

}  // namespace sluice
