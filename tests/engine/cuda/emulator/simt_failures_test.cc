// The emulated device fails as a script requires, and then behaves like a GPU after that failure.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/cuda/emulator/simt_device.h"
#include "tests/support/device_lab.h"

namespace sluice::simt {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

// Makes one call of every kind, each with an object of its own, and returns their statuses.
std::vector<absl::Status> MakeEveryCall(SimtDevice& device) {
  std::vector<absl::Status> statuses;
  const auto keep = [&](const absl::Status& status) { statuses.push_back(status); };
  const auto memory = device.Allocate(8);
  keep(memory.status());
  const auto pinned = device.AllocatePinned(8);
  keep(pinned.status());
  const auto stream = device.CreateStream();
  keep(stream.status());
  const auto event = device.CreateEvent();
  keep(event.status());
  if (!memory.ok() || !pinned.ok() || !stream.ok() || !event.ok()) return statuses;
  (*stream)->CopyToDevice(memory->get(), pinned->get(), 8);
  keep((*stream)->TakeStatus());
  (*stream)->Fill(memory->get(), 0, 8);
  keep((*stream)->TakeStatus());
  (*stream)->Record(**event);
  keep((*stream)->TakeStatus());
  (*stream)->Wait(**event);
  keep((*stream)->TakeStatus());
  (*stream)->BeginCapture();
  (*stream)->Fill(memory->get(), 0, 8);
  const auto graph = (*stream)->EndCapture();
  keep(graph.status());
  if (graph.ok()) {
    (*stream)->Run(**graph);
    keep((*stream)->TakeStatus());
  }
  keep((*stream)->Synchronize());
  keep((*event)->Synchronize());
  keep((*stream)->Synchronize());  // no failure, even after earlier failures
  return statuses;
}

constexpr SimtCall kPlayed[] = {SimtCall::kAllocate,
                                SimtCall::kAllocatePinned,
                                SimtCall::kCreateStream,
                                SimtCall::kCreateEvent,
                                SimtCall::kCopy,
                                SimtCall::kFill,
                                SimtCall::kRecord,
                                SimtCall::kWait,
                                SimtCall::kBeginCapture,
                                SimtCall::kInstantiate,
                                SimtCall::kUpload,
                                SimtCall::kRun,
                                SimtCall::kSynchronizeStream,
                                SimtCall::kSynchronizeEvent};

bool Waits(SimtCall call) {
  return call == SimtCall::kSynchronizeStream || call == SimtCall::kSynchronizeEvent;
}

TEST(SimtFailureTest, OneCallFailsAndTheDeviceContinues) {
  for (const SimtCall call : kPlayed) {
    if (Waits(call)) continue;
    for (const auto& [code, expected] : {std::pair{2, absl::StatusCode::kResourceExhausted},
                                         std::pair{999, absl::StatusCode::kInternal}}) {
      const auto device = MakeSimtDevice({.failures = {{.call = call, .nth = 1, .code = code}}});
      std::vector<absl::Status> failed;
      for (const absl::Status& status : MakeEveryCall(*device)) {
        if (!status.ok()) failed.push_back(status);
      }
      ASSERT_EQ(failed.size(), 1u) << NameOf(call);
      EXPECT_EQ(failed[0].code(), expected);
      EXPECT_THAT(std::string(failed[0].message()),
                  HasSubstr(std::string(NameOf(call)) + ": error " + std::to_string(code)));
      for (const absl::Status& status : MakeEveryCall(*device)) EXPECT_TRUE(status.ok()) << status;
      EXPECT_THAT(device->fault(), IsEmpty());
    }
  }
}

TEST(SimtFailureTest, AfterALossNothingRunsAndEveryCallIsRefused) {
  for (const SimtCall call : kPlayed) {
    std::vector<SimtFailure> failures = {{call, 1, 700}, {call, 1, 999, 999}, {call, 1, 2, 46}};
    if (Waits(call)) failures.push_back({call, 1, 999, 0});
    for (const SimtFailure& failure : failures) {
      const auto device = MakeSimtDevice({.failures = {failure}});
      const std::vector<absl::Status> statuses = MakeEveryCall(*device);
      EXPECT_TRUE(absl::IsUnavailable(statuses.back())) << statuses.back();
      const SimtCounts lost = device->counts();
      for (const absl::Status& status : MakeEveryCall(*device)) {
        EXPECT_EQ(status, statuses.back());
      }
      SimtCounts later = device->counts() - lost;
      EXPECT_GT(later.refused, 0);
      later.refused = 0;
      EXPECT_TRUE(later == SimtCounts{}) << NameOf(call);
      EXPECT_EQ(device->FreeMemory(), 0);
    }
  }
}

TEST(SimtFailureTest, AStreamWaitsForTheWorkBeforeAFailure) {
  DeviceLab lab(
      MakeSimtDevice({.order = SimtOrder::kLate, .failures = {{SimtCall::kFill, 1, 999}}}));
  const PinnedMemory out = lab.device().AllocatePinned(sizeof(float)).value();
  float* const memory = lab.Put<float>({1});
  lab.stream().CopyToHost(out.get(), memory, sizeof(float));
  lab.stream().Fill(memory, 0, 4);
  EXPECT_EQ(lab.stream().Synchronize().code(), absl::StatusCode::kInternal);
  EXPECT_EQ(*static_cast<const float*>(out.get()), 1);
}

TEST(SimtFailureTest, AnAllocationOfItsThreadBreaksACapture) {
  for (const bool same_thread : {true, false}) {
    DeviceLab lab(MakeSimtDevice());
    float* const memory = lab.Room<float>(1);
    lab.stream().BeginCapture();
    lab.stream().Fill(memory, 0, 4);
    absl::Status allocated;
    const auto allocate = [&] { allocated = lab.device().AllocatePinned(8).status(); };
    if (same_thread) {
      allocate();
    } else {
      std::thread(allocate).join();
    }
    const absl::Status captured = lab.stream().EndCapture().status();
    EXPECT_EQ(allocated.ok(), !same_thread);
    EXPECT_EQ(captured.ok(), !same_thread);
    if (same_thread) {
      EXPECT_EQ(allocated.message(), "cudaMallocHost: error 900");
      EXPECT_EQ(captured.message(), "cudaStreamEndCapture: error 901");
    }
    EXPECT_TRUE(lab.Finish().ok()) << "the device continues";
  }
}

}  // namespace
}  // namespace sluice::simt
