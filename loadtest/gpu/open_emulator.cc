#include "engine/cuda/emulator/simt_device.h"
#include "loadtest/gpu/open_device.h"

namespace sluice::gpu {

absl::StatusOr<std::unique_ptr<Device>> OpenDevice() {
  return simt::MakeSimtDevice(
      {.dense = {simt::SimtDense::kInvariant, simt::SimtDense::kWorkspace}});
}

}  // namespace sluice::gpu
