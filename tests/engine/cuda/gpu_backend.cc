#include <numeric>

#include "absl/strings/str_split.h"
#include "base/check.h"
#include "engine/cuda/cuda_backend.h"
#include "engine/cuda/cuda_device.h"
#include "tests/engine/cpu/runner.h"

namespace sluice::testing {

std::vector<std::string> SupportedProfiles() {
  // The last one has the kernels that pass their trial, which may be tuned for this GPU.
  std::vector<std::string> profiles = {"cuda-own-f32", "cuda-own-bf16", "cuda-own-bf16-tried"};
  const auto device = MakeCudaDevice(0);
  if (device.ok() && (*device)->DenseLibrary().ok()) {
    profiles.insert(profiles.end(), {"cuda-cublaslt-f32", "cuda-cublaslt-bf16"});
  }
  return profiles;
}
std::vector<std::string> F32Profiles() { return {"cuda-own-f32"}; }

std::unique_ptr<Backend> MakeBackendUnderTest(const CpuOptions& options) {
  const std::vector<std::string> parts = absl::StrSplit(options.profile, '-');
  // Each test loads a model. The benchmarks try the kernels with the full effort.
  const CudaDeviceOptions device = {.check = {.runs = 2, .busy_bytes = 1 << 20}};
  auto backend = MakeCudaBackend(MakeCudaDevice(0, device).value(),
                                 {.dtype = parts[2],
                                  .dense = parts[1],
                                  .kernels = parts.size() > 3 ? "auto" : "portable",
                                  .poison = options.poison});
  SLUICE_CHECK(backend.ok());
  return *std::move(backend);
}

Effort EffortOfTests() {
  std::vector<int32_t> upto64(64);
  std::iota(upto64.begin(), upto64.end(), 1);
  return {.long_sum = 2056,
          .ladder = {16, 32, 64, 128},
          .random_models = 30,
          .greedy_steps = 8,
          .every_kind = true,
          .quantized = {"int8_dense", "int8_position_wise", "int8_bert", "int8_encoder",
                        "int8_experts"},
          .quantized_head = false,
          .threads = {1},
          .sequences = upto64,
          .real_sizes = {{.head_dim = 64,
                          .heads = 16,
                          .kv_heads = 16,
                          .hidden = 1024,
                          .intermediate = 4096,
                          .vocab = 32768,
                          .length = 2048},
                         {.head_dim = 128,
                          .heads = 32,
                          .kv_heads = 8,
                          .hidden = 1024,
                          .intermediate = 4096,
                          .vocab = 32768,
                          .length = 2048},
                         {.head_dim = 256,
                          .heads = 8,
                          .kv_heads = 1,
                          .hidden = 2048,
                          .intermediate = 4096,
                          .vocab = 32768,
                          .length = 2048}}};
}

}  // namespace sluice::testing
