// Measures what the cost model knows of this machine's processor.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "cascades/einsum/device_description.h"
#include "kernels/cpu/context.h"

namespace sluice {

// Returns the best of short runs on the threads of the pool, which take some 200 ms and 128 MiB in
// all. Multiply-adds in bf16 are measured if the profile has them.
einsum::DeviceDescription ProbeDevice(const kernels::Context& context);

// Reads a file that holds what DeviceDescriptionJson returns. Errors name the file.
absl::StatusOr<einsum::DeviceDescription> ReadDeviceFile(const std::string& path);

}  // namespace sluice
