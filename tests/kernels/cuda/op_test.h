// Shared by the tests of the CUDA kernels: dtypes and the device.
#pragma once

#include "kernels/cuda/rows.h"
#include "tests/kernels/common/values.h"
#include "tests/kernels/cuda/device_under_test.h"
#include "tests/support/device_lab.h"

namespace sluice::kernels::cuda {

using DTypes = testing::Types<float, BFloat16>;

// A device, a seed that differs between tests but not between runs, and the live rows of a step
// that is smaller than its bucket.
class OpTest : public testing::Test {
 protected:
  OpTest() { RecordProperty("seed", static_cast<int>(kSeed)); }

  static constexpr uint64_t kSeed = 20261121;
  std::mt19937_64 random_{kSeed};
  DeviceLab lab_{MakeDeviceUnderTest(kSeed)};

  LiveRows Live(int32_t count, int32_t spare = 3) {
    return {lab_.Put<int32_t>({count}), count + spare};
  }
};

}  // namespace sluice::kernels::cuda
