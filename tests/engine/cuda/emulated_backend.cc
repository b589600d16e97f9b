#include "engine/cuda/cuda_backend.h"
#include "kernels/check.h"
#include "tests/engine/cpu/runner.h"
#include "tests/simt/simt_device.h"

namespace sluice::testing {

std::vector<std::string> SupportedProfiles() { return {"cuda-simt-f32", "cuda-simt-bf16"}; }
std::vector<std::string> F32Profiles() { return {"cuda-simt-f32"}; }

std::unique_ptr<Backend> MakeBackendUnderTest(const CpuOptions& options) {
  const std::string dtype = options.profile.substr(options.profile.rfind('-') + 1);
  // Threads of the host mean nothing here; another order of the device's threads does.
  auto backend =
      MakeCudaBackend(simt::MakeSimtDevice({.seed = static_cast<uint64_t>(options.threads)}),
                      {.dtype = dtype, .poison = options.poison});
  SLUICE_CHECK(backend.ok());
  return *std::move(backend);
}

// A projection brings at most 32 values of a sum at a time, a chunk of attention has 32 positions.
Effort EffortOfTests() {
  return {.long_sum = 100,
          .ladder = {16, 40},
          .random_models = 3,
          .greedy_steps = 1,
          .every_kind = false,
          .threads = {2},
          .sequences = {1, 17, 33}};
}

}  // namespace sluice::testing
