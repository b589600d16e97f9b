// Shared by the tests of device code with planted faults.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "engine/cuda/emulator/simt_device.h"
#include "tests/kernels/simt/planted.h"
#include "tests/support/device_lab.h"

namespace sluice::kernels::cuda::planted {

// A device whose threads run in the order of a seed.
class PlantedTest : public testing::TestWithParam<uint64_t> {
 protected:
  std::string Fault() { return std::string(lab_.Finish().message()); }

  DeviceLab lab_{simt::MakeSimtDevice({.seed = GetParam()})};
};

}  // namespace sluice::kernels::cuda::planted
