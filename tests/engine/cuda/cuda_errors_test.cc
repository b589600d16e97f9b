#include "engine/cuda/cuda_errors.h"

#include <gtest/gtest.h>

#include <set>

namespace sluice {
namespace {

constexpr int32_t kUnknown = 999, kLastCode = 999;

// The codes after which the runtime's documentation requires the process to end, and the codes of
// uncorrected memory errors.
const std::set<int32_t> kFatal = {214, 220, 226, 700, 702, 710, 714, 715,
                                  716, 717, 718, 719, 721, 810, 911};

TEST(CudaErrorsTest, AResponsiveDeviceIsLostOnlyAfterAFatalCode) {
  for (int32_t code = 1; code <= kLastCode; ++code) {
    EXPECT_EQ(LosesDevice(code, 0), kFatal.contains(code)) << code;
  }
  EXPECT_FALSE(LosesDevice(12345, 0));
}

// This includes codes that mean a lost device only if they are sticky: a destroyed context, a
// system or an MPS server that is not ready, an unknown error.
TEST(CudaErrorsTest, AnUnresponsiveDeviceIsLostAfterEveryCode) {
  for (int32_t code = 1; code <= kLastCode; ++code) {
    EXPECT_TRUE(LosesDevice(code, kUnknown)) << code;
    EXPECT_TRUE(LosesDevice(code, 802)) << code;
    EXPECT_TRUE(LosesDevice(code, 700)) << code;
  }
  for (const int32_t code : {46, 709, 802, 805, 806, 807, 999, 12345}) {
    EXPECT_TRUE(LosesDevice(code, code)) << code;
  }
}

TEST(CudaErrorsTest, ATemporarilyRefusedProbeCountsAsAnswered) {
  for (const int32_t probe : {2, 600, 900, 901, 906, 908}) {
    EXPECT_FALSE(LosesDevice(kUnknown, probe)) << probe;
  }
  for (const int32_t probe : {1, 3, 4, 46, 909, 911}) {
    EXPECT_TRUE(LosesDevice(kUnknown, probe)) << probe;
  }
}

// An error because a capture forbids the call is returned before any waiting.
TEST(CudaErrorsTest, AFailedWaitLosesTheDevice) {
  for (int32_t code = 1; code <= kLastCode; ++code) {
    const bool refused = code >= 900 && code <= 908;
    EXPECT_EQ(LosesDevice(code, 0, /*waited=*/true), !refused) << code;
    EXPECT_EQ(absl::IsUnavailable(CudaStatus(code, 0, "", /*waited=*/true)), !refused);
  }
  EXPECT_FALSE(LosesDevice(0, 0, /*waited=*/true));
}

TEST(CudaErrorsTest, TheStatusCodeMatchesTheKindOfFailure) {
  EXPECT_TRUE(CudaStatus(0, kUnknown, "").ok()) << "nothing failed";
  for (int32_t code = 1; code <= kLastCode; ++code) {
    const absl::Status answered = CudaStatus(code, 0, "text");
    EXPECT_EQ(answered.message(), "text");
    EXPECT_EQ(answered.code(), kFatal.contains(code)      ? absl::StatusCode::kUnavailable
                               : code == kCudaOutOfMemory ? absl::StatusCode::kResourceExhausted
                                                          : absl::StatusCode::kInternal)
        << code;
    EXPECT_TRUE(absl::IsUnavailable(CudaStatus(code, kUnknown, ""))) << code;
  }
}

}  // namespace
}  // namespace sluice
