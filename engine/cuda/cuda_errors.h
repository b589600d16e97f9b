// The meaning of the CUDA runtime's error codes, without its headers.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace sluice {

inline constexpr int32_t kCudaOutOfMemory = 2;
inline constexpr int32_t kCudaCaptureUnsupported = 900, kCudaCaptureInvalidated = 901;

// Returns whether the device is lost after a call that returned `code`. `probe` is the code that
// the runtime then returned for a harmless call, which uses the device and queues nothing. After a
// sticky error every later call fails, so the probe also finds sticky errors that no list contains.
// `waited` is whether the call waited for queued work. If such a call fails, it is unknown when the
// work's memory is free.
bool LosesDevice(int32_t code, int32_t probe, bool waited = false);

// Returns the status of a call that returned `code`, with the message `text`: Unavailable if the
// device is lost, ResourceExhausted if memory does not suffice, otherwise Internal.
absl::Status CudaStatus(int32_t code, int32_t probe, const std::string& text, bool waited = false);

}  // namespace sluice
