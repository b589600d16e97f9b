#include "engine/cuda/cuda_errors.h"

#include <algorithm>
#include <iterator>

namespace sluice {
namespace {

// The errors after which the device must not be used any more, even if later calls succeed: either
// the runtime's documentation requires the process to end, or memory has lost its content.
constexpr int32_t kFatal[] = {
    214,  // cudaErrorECCUncorrectable
    220,  // cudaErrorNvlinkUncorrectable
    226,  // cudaErrorContained
    700,  // cudaErrorIllegalAddress
    702,  // cudaErrorLaunchTimeout
    710,  // cudaErrorAssert
    714,  // cudaErrorHardwareStackError
    715,  // cudaErrorIllegalInstruction
    716,  // cudaErrorMisalignedAddress
    717,  // cudaErrorInvalidAddressSpace
    718,  // cudaErrorInvalidPc
    719,  // cudaErrorLaunchFailure
    721,  // cudaErrorTensorMemoryLeak
    810,  // cudaErrorMpsClientTerminated
    911,  // cudaErrorExternalDevice
};
constexpr int32_t kNotReady = 600, kFirstCaptureError = 900, kLastCaptureError = 908;

bool RefusesCapture(int32_t code) {
  return code >= kFirstCaptureError && code <= kLastCaptureError;
}

// Returns whether the probe reached the device: it succeeded, or was refused for a passing reason.
bool Answers(int32_t probe) {
  return probe == 0 || probe == kCudaOutOfMemory || probe == kNotReady || RefusesCapture(probe);
}

}  // namespace

bool LosesDevice(int32_t code, int32_t probe, bool waited) {
  if (code == 0) return false;
  return std::ranges::find(kFatal, code) != std::end(kFatal) || !Answers(probe) ||
         (waited && !RefusesCapture(code));
}

absl::Status CudaStatus(int32_t code, int32_t probe, const std::string& text, bool waited) {
  if (code == 0) return absl::OkStatus();
  if (LosesDevice(code, probe, waited)) return absl::UnavailableError(text);
  return code == kCudaOutOfMemory ? absl::ResourceExhaustedError(text) : absl::InternalError(text);
}

}  // namespace sluice
