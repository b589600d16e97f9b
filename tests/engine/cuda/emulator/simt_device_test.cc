#include "engine/cuda/emulator/simt_device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "tests/kernels/simt/planted.h"
#include "tests/support/device_lab.h"

namespace sluice::simt {
namespace {

using kernels::cuda::planted::AddCount;
using testing::HasSubstr;
using testing::IsEmpty;

// Pinned memory of floats.
class Pinned {
 public:
  Pinned(Device& device, std::vector<float> values)
      : memory_(device.AllocatePinned(values.size() * sizeof(float)).value()) {
    std::memcpy(memory_.get(), values.data(), values.size() * sizeof(float));
  }
  float* data() const { return static_cast<float*>(memory_.get()); }
  float& operator[](size_t i) const { return data()[i]; }
  void Release() { memory_ = nullptr; }

 private:
  PinnedMemory memory_;
};

SimtDevice& Emulated(DeviceLab& lab) { return static_cast<SimtDevice&>(lab.device()); }

TEST(SimtDeviceTest, AnEventOrdersTwoStreams) {
  for (const SimtOrder order : {SimtOrder::kLate, SimtOrder::kEarly, SimtOrder::kRandom}) {
    for (uint64_t seed = 1; seed <= 20; ++seed) {
      DeviceLab lab(MakeSimtDevice({.seed = seed, .order = order}));
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
  }
}

// The wait refers to the record before it, and to its stream, which may end.
TEST(SimtDeviceTest, AWaitIsForTheLastRecordBeforeIt) {
  DeviceLab lab(MakeSimtDevice({.order = SimtOrder::kLate}));
  auto other = lab.device().CreateStream().value();
  auto event = lab.device().CreateEvent().value();
  const int32_t* n = lab.Put<int32_t>({1});
  float *a = lab.Put<float>({1}), *b = lab.Room<float>(1), *c = lab.Room<float>(1);
  AddCount(*other, a, n, 1, b);
  other->Record(*event);
  lab.stream().Wait(*event);
  AddCount(lab.stream(), b, n, 1, c);
  lab.stream().Record(*event);
  other = nullptr;
  EXPECT_EQ(lab.Get(c, 1)[0], 3);
}

TEST(SimtDeviceTest, AGraphRepeatsItsLaunchesAndCopies) {
  DeviceLab lab(MakeSimtDevice());
  const int32_t* n = lab.Put<int32_t>({1});
  const Pinned in(lab.device(), {1}), out(lab.device(), {0});
  float *a = lab.Room<float>(1), *b = lab.Room<float>(1);
  lab.stream().BeginCapture();
  lab.stream().CopyToDevice(a, in.data(), 4);
  AddCount(lab.stream(), a, n, 1, b);
  lab.stream().CopyToHost(out.data(), b, 4);
  auto graph = lab.stream().EndCapture().value();
  EXPECT_EQ(graph->nodes(), 3);
  ASSERT_TRUE(lab.Finish().ok());
  EXPECT_EQ(out[0], 0) << "capture runs nothing";
  for (float value : {5.0f, 7.0f}) {
    in[0] = value;
    lab.stream().Run(*graph);
    ASSERT_TRUE(lab.Finish().ok());
    EXPECT_EQ(out[0], value + 1);
  }
  EXPECT_EQ(lab.device().captures(), 1);
}

TEST(SimtDeviceTest, AFaultIsReportedByEveryLaterCall) {
  DeviceLab lab(MakeSimtDevice());
  float* out = lab.Put<float>({0});
  const Pinned in(lab.device(), {1, 2});
  lab.stream().CopyToDevice(out, in.data(), 8);
  EXPECT_THAT(std::string(lab.Finish().message()), HasSubstr("CopyToDevice touches 8 bytes"));
  auto other = lab.device().CreateStream();
  EXPECT_EQ(other.status(), lab.Finish());
  EXPECT_EQ(Emulated(lab).fault(), lab.Finish().message());
  EXPECT_EQ(*out, 0);
}

TEST(SimtDeviceTest, ReleasingMemoryThatPendingWorkUsesIsCaught) {
  DeviceLab lab(MakeSimtDevice({.order = SimtOrder::kLate}));
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
            : "kernel Reverse needs 512 bytes of shared memory a block, the device has 511";
    EXPECT_EQ(lab.Finish().message(), fault);
  }
}

TEST(SimtDeviceTest, AllocatingMoreThanTheDeviceHasIsResourceExhausted) {
  DeviceLab lab(MakeSimtDevice({.memory_bytes = 1000}));
  EXPECT_TRUE(lab.device().Allocate(900).ok());
  const DeviceMemory most = lab.device().Allocate(900).value();
  EXPECT_EQ(lab.device().Allocate(101).status().code(), absl::StatusCode::kResourceExhausted);
}

TEST(SimtCountsTest, EveryCallIsCountedOnce) {
  DeviceLab lab(MakeSimtDevice());
  SimtDevice& device = Emulated(lab);
  const int32_t* n = lab.Put<int32_t>({1});
  float* const a = lab.Put<float>({1});
  float* const b = lab.Room<float>(8);
  const SimtCounts before = device.counts();
  {
    const DeviceMemory memory = device.Allocate(100).value();
    const Pinned in(device, {1, 2});
    const auto event = device.CreateEvent().value();
    DeviceStream& stream = lab.stream();
    stream.CopyToDevice(b, in.data(), 8);
    stream.CopyToDevice(b, in.data(), 4);
    stream.CopyToHost(in.data(), b, 4);
    stream.CopyOnDevice(b, a, 4);
    stream.Fill(b, 0, 4);
    AddCount(stream, a, n, 1, b);
    stream.Record(*event);
    stream.Wait(*event);
    EXPECT_TRUE(event->Synchronize().ok());
    stream.BeginCapture();
    AddCount(stream, a, n, 1, b);
    stream.Fill(b, 0, 4);
    const auto graph = stream.EndCapture().value();
    for (int i = 0; i < 3; ++i) stream.Run(*graph);
    EXPECT_TRUE(stream.Synchronize().ok());
    const SimtCounts live = device.counts() - before;
    EXPECT_EQ(live.device_bytes, 100);
    EXPECT_EQ(live.pinned_bytes, 8);
    EXPECT_EQ(live.events, 1);
    EXPECT_EQ(live.graphs, 1);
  }
  const SimtCounts expected = {.waits = 2,
                               .launches = 1,
                               .runs = 3,
                               .nodes = 6,
                               .copies_to_device = 2,
                               .bytes_to_device = 12,
                               .copies_to_host = 1,
                               .bytes_to_host = 4,
                               .copies_on_device = 1,
                               .fills = 1,
                               .allocations = 1,
                               .pinned_allocations = 1,
                               .captures = 1,
                               .ran = 12};
  EXPECT_TRUE(device.counts() - before == expected);
  EXPECT_EQ(device.calls(SimtCall::kRun), 3);
}

// Each plants one fault in a correct program and returns the value that the host receives.
float ReuseStaging(SimtOptions options, bool wait) {
  DeviceLab lab(MakeSimtDevice(options));
  const Pinned staging(lab.device(), {1});
  float* const to = lab.Room<float>(1);
  lab.stream().CopyToDevice(to, staging.data(), 4);
  if (wait) (void)lab.Finish();
  staging[0] = 2;
  return lab.Get(to, 1)[0];
}

float ReadResult(SimtOptions options, bool wait) {
  DeviceLab lab(MakeSimtDevice(options));
  const Pinned result(lab.device(), {0});
  float* const from = lab.Put<float>({1});
  lab.stream().CopyToHost(result.data(), from, 4);
  if (wait) (void)lab.Finish();
  const float read = result[0];
  (void)lab.Finish();
  return read;
}

// The host waits for the first stream and then for the second. Running each in turn therefore hides
// that nothing orders them.
float ReadWhatAnotherStreamWrites(SimtOptions options, bool wait) {
  DeviceLab lab(MakeSimtDevice(options));
  const auto other = lab.device().CreateStream().value();
  const auto event = lab.device().CreateEvent().value();
  const Pinned in(lab.device(), {1}), out(lab.device(), {0});
  float *a = lab.Put<float>({7}), *b = lab.Room<float>(1);
  lab.stream().CopyToDevice(a, in.data(), 4);
  lab.stream().Record(*event);
  if (wait) other->Wait(*event);
  other->CopyOnDevice(b, a, 4);
  other->CopyToHost(out.data(), b, 4);
  EXPECT_TRUE(lab.Finish().ok());
  EXPECT_TRUE(other->Synchronize().ok());
  return out[0];
}

// Returns in how many of 40 runs with different seeds a program receives a value other than 1.
template <typename Program>
int Wrong(Program program, SimtOrder order, bool wait) {
  int wrong = 0;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    wrong += program({.seed = seed, .order = order}, wait) != 1;
  }
  return wrong;
}

TEST(SimtOrderTest, CorrectProgramsReceiveTheSameInEveryOrder) {
  for (const SimtOrder order : {SimtOrder::kLate, SimtOrder::kEarly, SimtOrder::kRandom}) {
    EXPECT_EQ(Wrong(ReuseStaging, order, /*wait=*/true), 0);
    EXPECT_EQ(Wrong(ReadResult, order, /*wait=*/true), 0);
    EXPECT_EQ(Wrong(ReadWhatAnotherStreamWrites, order, /*wait=*/true), 0);
  }
}

TEST(SimtOrderTest, MemoryThatIsReusedTooEarlyIsFoundLate) {
  EXPECT_EQ(Wrong(ReuseStaging, SimtOrder::kLate, /*wait=*/false), 40);
  EXPECT_GT(Wrong(ReuseStaging, SimtOrder::kRandom, /*wait=*/false), 5);
  EXPECT_EQ(Wrong(ReuseStaging, SimtOrder::kEarly, /*wait=*/false), 0);
}

TEST(SimtOrderTest, AResultThatIsReadTooEarlyIsFound) {
  EXPECT_EQ(Wrong(ReadResult, SimtOrder::kLate, /*wait=*/false), 40);
  EXPECT_GT(Wrong(ReadResult, SimtOrder::kRandom, /*wait=*/false), 5);
  EXPECT_EQ(Wrong(ReadResult, SimtOrder::kEarly, /*wait=*/false), 0);
}

TEST(SimtOrderTest, AMissingWaitBetweenStreamsIsFoundAtRandom) {
  EXPECT_EQ(Wrong(ReadWhatAnotherStreamWrites, SimtOrder::kLate, /*wait=*/false), 0);
  EXPECT_EQ(Wrong(ReadWhatAnotherStreamWrites, SimtOrder::kEarly, /*wait=*/false), 0);
  EXPECT_GT(Wrong(ReadWhatAnotherStreamWrites, SimtOrder::kRandom, /*wait=*/false), 5);
}

TEST(SimtPinnedTest, HostMemoryOfACopyIsPinned) {
  for (const bool to_device : {true, false}) {
    for (const bool captured : {true, false}) {
      DeviceLab lab(MakeSimtDevice());
      float* const device = lab.Put<float>({1, 2});
      const Pinned pinned(lab.device(), {1, 2});
      const auto copy = [&](float* host) {
        if (captured) lab.stream().BeginCapture();
        if (to_device) {
          lab.stream().CopyToDevice(device, host, 8);
        } else {
          lab.stream().CopyToHost(host, device, 8);
        }
        return captured ? lab.stream().EndCapture().status() : lab.stream().Synchronize();
      };
      EXPECT_TRUE(copy(pinned.data()).ok());
      std::vector<float> vector(2);
      float* const host = captured ? pinned.data() + 1 : vector.data();  // or past the end
      EXPECT_THAT(std::string(copy(host).message()),
                  HasSubstr("touches 8 bytes of the host that are not pinned"));
      EXPECT_FALSE(Emulated(lab).fault().empty());
    }
  }
}

TEST(SimtPinnedTest, MemoryThatAQueuedCopyUsesIsNotReleased) {
  for (const bool wait : {true, false}) {
    DeviceLab lab(MakeSimtDevice({.order = SimtOrder::kLate}));
    Pinned pinned(lab.device(), {1, 2});
    lab.stream().CopyToDevice(lab.Room<float>(1), pinned.data() + 1, 4);
    if (wait) (void)lab.Finish();
    pinned.Release();
    EXPECT_EQ(Emulated(lab).fault(),
              wait ? "" : "released pinned memory is in use by a queued copy");
  }
}

TEST(SimtPinnedTest, AGraphDoesNotCopyReleasedMemory) {
  DeviceLab lab(MakeSimtDevice());
  Pinned pinned(lab.device(), {1});
  float* const to = lab.Room<float>(1);
  lab.stream().BeginCapture();
  lab.stream().CopyToDevice(to, pinned.data(), 4);
  const auto graph = lab.stream().EndCapture().value();
  pinned.Release();
  EXPECT_THAT(Emulated(lab).fault(), IsEmpty());
  lab.stream().Run(*graph);
  EXPECT_THAT(std::string(lab.Finish().message()), HasSubstr("not pinned"));
}

TEST(SimtPinnedTest, MemoryIsReleasedOnce) {
  for (const bool pinned : {true, false}) {
    const auto device = MakeSimtDevice();
    void* const memory =
        pinned ? device->AllocatePinned(8)->release() : device->Allocate(8)->release();
    const ReleaseMemory release{device.get(), pinned};
    release(memory);
    EXPECT_THAT(device->fault(), IsEmpty());
    release(memory);
    EXPECT_THAT(device->fault(), HasSubstr("memory is not allocated"));
  }
}

}  // namespace
}  // namespace sluice::simt
