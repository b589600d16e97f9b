#include "engine/cuda/cuda_backend.h"
#include "engine/cuda/cuda_device.h"
#include "kernels/check.h"
#include "tests/engine/cpu/runner.h"

namespace sluice::testing {

std::vector<std::string> SupportedProfiles() { return {"cuda-f32", "cuda-bf16"}; }
std::vector<std::string> F32Profiles() { return {"cuda-f32"}; }

std::unique_ptr<Backend> MakeBackendUnderTest(const CpuOptions& options) {
  const std::string dtype = options.profile.substr(options.profile.rfind('-') + 1);
  auto backend =
      MakeCudaBackend(MakeCudaDevice(0).value(), {.dtype = dtype, .poison = options.poison});
  SLUICE_CHECK(backend.ok());
  return *std::move(backend);
}

Effort EffortOfTests() {
  return {.long_sum = 2056,
          .ladder = {16, 32, 64, 128},
          .random_models = 30,
          .greedy_steps = 8,
          .every_kind = true};
}

}  // namespace sluice::testing
