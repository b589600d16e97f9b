#include "engine/cuda/emulator/simt_device.h"
#include "loadtest/gpu/open_device.h"

namespace sluice::gpu {

// The library's best algorithm needs its workspace, so that a case without a workspace fails.
absl::StatusOr<std::unique_ptr<Device>> OpenDevice() {
  return simt::MakeSimtDevice(
      {.dense = {simt::SimtDense::kWorkspace, simt::SimtDense::kInvariant}});
}

absl::StatusOr<std::optional<KernelFacts>> FactsOf(const kernels::cuda::Kernel&,
                                                   const kernels::cuda::LaunchShape&) {
  return std::nullopt;
}

}  // namespace sluice::gpu
