#include <numeric>

#include "base/check.h"
#include "engine/cpu/cpu_backend.h"
#include "kernels/cpu/loop_count.h"
#include "kernels/cpu/profile.h"
#include "tests/engine/cpu/runner.h"
#include "tests/support/golden_file.h"

namespace sluice::testing {

std::vector<std::string> SupportedProfiles() {
  std::vector<std::string> names;
  for (const kernels::Profile profile : kernels::kProfiles) {
    if (kernels::ProfileSupported(profile)) names.emplace_back(kernels::ProfileName(profile));
  }
  return names;
}

std::vector<std::string> F32Profiles() {
  std::vector<std::string> names;
  for (const kernels::Profile profile : kernels::kProfiles) {
    if (!kernels::ProfileSupported(profile) || kernels::MultipliesInBf16(profile)) continue;
    names.emplace_back(kernels::ProfileName(profile));
  }
  return names;
}

std::unique_ptr<Backend> MakeBackendUnderTest(const CpuOptions& options) {
  auto backend = MakeCpuBackend(options);
  SLUICE_CHECK(backend.ok());
  return *std::move(backend);
}

int64_t LaunchesOfBackends() { return kernels::LoopsOfThisThread(); }

// A profile that multiplies in bf16 cuts the sums of a step of 128 rows into pieces of 1024 values;
// a sum of `long_sum` values has three.
Effort EffortOfTests() {
  std::vector<int32_t> upto64(64);
  std::iota(upto64.begin(), upto64.end(), 1);
  return {.long_sum = 2056,
          .ladder = {16, 32, 64, 128},
          .random_models = 30,
          .greedy_steps = 8,
          .every_kind = true,
          .quantized = {"int8_dense", "int8_position_wise", "int8_bert", "int8_encoder",
                        "int4_dense", "int4_position_wise", "kv_bf16_xsa_lm", "kv_int8_dense",
                        "kv_bf16_windowed", "kv_int8_xsa_lm", "kv_int8_hstu", "int8_experts",
                        "int4_experts", "int8_experts_encoder"},
          .quantized_head = true,
          .threads = {1, 2},
          .sequences = upto64,
          .real_sizes = {{.head_dim = 128,
                          .heads = 4,
                          .kv_heads = 2,
                          .hidden = 256,
                          .intermediate = 1056,
                          .vocab = 1000,
                          .length = 200}},
          .families = FamilyGoldens(),
          .disentangled = true};
}

}  // namespace sluice::testing
