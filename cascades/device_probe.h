// Measures this machine's processor for the cost model.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "cascades/einsum/device_description.h"
#include "kernels/cpu/context.h"

namespace sluice {

// Returns the best of short runs on the threads of the pool. They take about 200 ms and 128 MiB in
// total. Multiply-adds in bf16 are measured if the profile has them.
einsum::DeviceDescription ProbeDevice(const kernels::Context& context);

// Reads a file with the output of DeviceDescriptionJson. Errors name the file.
absl::StatusOr<einsum::DeviceDescription> ReadDeviceFile(const std::string& path);

}  // namespace sluice
