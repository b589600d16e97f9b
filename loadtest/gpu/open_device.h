// Opens the device that gpu_bench times: the first GPU, or the emulator for a rehearsal.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "engine/cuda/device.h"

namespace sluice::gpu {

// Returns FailedPrecondition or InvalidArgument with the reason if there is no device.
absl::StatusOr<std::unique_ptr<Device>> OpenDevice();

// The resources of a compiled kernel on the device.
struct KernelFacts {
  std::string function;  // its name with the types of its template
  int32_t registers;     // per thread
  int64_t local_bytes;   // per thread: spilled registers, and arrays that are not in registers
  int64_t static_shared_bytes;
  int32_t blocks_per_processor;  // for the launch's threads and shared memory
  double occupancy;              // the share of a processor's threads that these blocks fill
};

// Returns nullopt in the emulator, and FailedPrecondition if the device refuses the launch.
absl::StatusOr<std::optional<KernelFacts>> FactsOf(const kernels::cuda::Kernel& kernel,
                                                   const kernels::cuda::LaunchShape& shape);

}  // namespace sluice::gpu
