#include "engine/cuda/emulator/simt_device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/kernels/simt/planted.h"
#include "tests/support/device_lab.h"

namespace sluice::simt {
namespace {

using kernels::cuda::planted::AddCount;
using testing::HasSubstr;

TEST(SimtDeviceTest, WorkRunsInOrderWhenItIsWaitedFor) {
  DeviceLab lab(MakeSimtDevice());
  std::vector<float> in = {1, 2}, got(2);
  float *from = lab.Room<float>(2), *to = lab.Room<float>(2);
  const int32_t* n = lab.Put<int32_t>({2});
  lab.stream().CopyToDevice(from, in.data(), 8);
  AddCount(lab.stream(), from, n, 1, to);
  lab.stream().CopyToHost(got.data(), to, 8);
  in[0] = 10;  // as if a staging buffer were reused
  ASSERT_TRUE(lab.Finish().ok());
  EXPECT_EQ(got, (std::vector<float>{12, 4}));
}

TEST(SimtDeviceTest, AnEventOrdersTwoStreams) {
  DeviceLab lab(MakeSimtDevice());
  auto other = lab.device().CreateStream().value();
  auto event = lab.device().CreateEvent().value();
  EXPECT_TRUE(event->Synchronize().ok());
  const int32_t* n = lab.Put<int32_t>({1});
  float *a = lab.Put<float>({1}), *b = lab.Room<float>(1), *c = lab.Room<float>(1);
  AddCount(lab.stream(), a, n, 1, b);
  lab.stream().Record(*event);
  other->Wait(*event);
  AddCount(*other, b, n, 1, c);
  ASSERT_TRUE(other->Synchronize().ok());
  EXPECT_EQ(lab.Get(c, 1)[0], 3);
  EXPECT_TRUE(event->Synchronize().ok());
}

TEST(SimtDeviceTest, AGraphRepeatsItsLaunchesAndCopies) {
  DeviceLab lab(MakeSimtDevice());
  const int32_t* n = lab.Put<int32_t>({1});
  float in = 1, out = 0;
  float *a = lab.Room<float>(1), *b = lab.Room<float>(1);
  lab.stream().BeginCapture();
  lab.stream().CopyToDevice(a, &in, 4);
  AddCount(lab.stream(), a, n, 1, b);
  lab.stream().CopyToHost(&out, b, 4);
  auto graph = lab.stream().EndCapture().value();
  EXPECT_EQ(graph->nodes(), 3);
  ASSERT_TRUE(lab.Finish().ok());
  EXPECT_EQ(out, 0) << "capture runs nothing";
  for (float value : {5.0f, 7.0f}) {
    in = value;
    lab.stream().Run(*graph);
    ASSERT_TRUE(lab.Finish().ok());
    EXPECT_EQ(out, value + 1);
  }
  EXPECT_EQ(static_cast<SimtDevice&>(lab.device()).captures(), 1);
}

TEST(SimtDeviceTest, AFaultIsReportedByEveryLaterCall) {
  DeviceLab lab(MakeSimtDevice());
  float* out = lab.Put<float>({0});
  lab.stream().CopyToDevice(out, out, 8);
  EXPECT_THAT(std::string(lab.Finish().message()), HasSubstr("CopyToDevice touches 8 bytes"));
  auto other = lab.device().CreateStream().value();
  other->Fill(out, 1, 4);
  EXPECT_EQ(other->Synchronize(), lab.Finish());
  EXPECT_EQ(*out, 0);
}

TEST(SimtDeviceTest, ReleasingMemoryThatPendingWorkUsesIsCaught) {
  DeviceLab lab(MakeSimtDevice());
  const int32_t* n = lab.Put<int32_t>({4});
  {
    DeviceMemory in = lab.device().Allocate(16).value();
    AddCount(lab.stream(), static_cast<float*>(in.get()), n, 1, lab.Room<float>(4));
  }
  EXPECT_FALSE(lab.Finish().ok());
}

TEST(SimtDeviceTest, ALaunchBeyondTheLimitOfSharedMemoryFails) {
  using kernels::cuda::planted::Reverse;
  using kernels::cuda::planted::Sync;
  for (int32_t limit : {511, 512}) {
    DeviceLab lab(MakeSimtDevice({.shared_bytes_limit = limit}));
    EXPECT_EQ(lab.device().info().shared_bytes_limit, limit);
    EXPECT_EQ(lab.stream().shared_bytes_limit(), limit);
    Reverse(lab.stream(), lab.Put(std::vector<float>(128)), Sync::kBlock, lab.Room<float>(128));
    const std::string fault =
        limit == 512
            ? ""
            : "kernel Reverse wants 512 bytes of shared memory a block, the device has 511";
    EXPECT_EQ(lab.Finish().message(), fault);
  }
}

TEST(SimtDeviceTest, AllocatingMoreThanTheDeviceHasIsResourceExhausted) {
  DeviceLab lab(MakeSimtDevice({.memory_bytes = 1000}));
  EXPECT_TRUE(lab.device().Allocate(900).ok());
  const DeviceMemory most = lab.device().Allocate(900).value();
  EXPECT_EQ(lab.device().Allocate(101).status().code(), absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace sluice::simt
