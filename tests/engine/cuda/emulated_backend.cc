#include <utility>

#include "absl/strings/str_split.h"
#include "base/check.h"
#include "engine/cuda/cuda_backend.h"
#include "engine/cuda/emulator/simt_device.h"
#include "tests/engine/cpu/runner.h"
#include "tests/support/golden_file.h"

namespace sluice::testing {

std::vector<std::string> SupportedProfiles() { return {"cuda-simt-f32", "cuda-simt-bf16"}; }
std::vector<std::string> F32Profiles() { return {"cuda-simt-f32"}; }

namespace {

const simt::SimtDevice* latest_device = nullptr;

}  // namespace

int64_t LaunchesOfBackends() {
  const simt::SimtCounts counts = latest_device->counts();
  return counts.launches + counts.nodes;
}

std::unique_ptr<Backend> MakeBackendUnderTest(const CpuOptions& options) {
  using simt::SimtDense;
  const std::vector<std::string> parts = absl::StrSplit(options.profile, '-');
  CudaBackendOptions cuda = {.dtype = parts[2], .poison = options.poison};
  // The number of host threads has no meaning here, so it selects another order of the device's
  // threads.
  simt::SimtOptions device = {.seed = static_cast<uint64_t>(options.threads)};
  if (parts.size() > 3) {  // "library", or "table" for the table of the tests
    cuda.dense = "cublaslt";
    device.dense = {SimtDense::kVaries, SimtDense::kDropsNaN, SimtDense::kWorkspace};
    if (parts[3] == "table")
      cuda.algorithms = SLUICE_SOURCE_DIR "/tests/engine/cuda/algorithms/simt.json";
  }
  auto made = simt::MakeSimtDevice(device);
  latest_device = made.get();
  auto backend = MakeCudaBackend(std::move(made), cuda);
  SLUICE_CHECK(backend.ok());
  return *std::move(backend);
}

// Returns the first configuration of each family, and the configurations with features that no
// first one has: windows in both directions, parallel blocks, YaRN with biases of a gated MLP,
// positions that are divided, a gated MLP with a relative bias, disentangled attention with
// projections of its own for positions, and layers of experts after a dense one. The CPU compares
// all configurations.
std::vector<std::string> FamiliesOfTests() {
  std::vector<std::string> families = FamilyGoldens();
  std::erase_if(families, [](const std::string& name) { return !name.ends_with("_1"); });
  families.insert(families.end(), {"gemma3_2", "gpt_neox_2", "llama3_2", "llama3_3", "t5_3",
                                   "deberta_v2_2", "deberta_v2_3", "qwen3_moe_2"});
  return families;
}

// A projection loads up to 64 values of a sum at a time, or 128 in int8, and a tile of it has 64
// columns. The tests of the kernels cover longer sums, and longer contexts, which are cut in
// segments of 512.
Effort EffortOfTests() {
  return {.long_sum = 100,
          .ladder = {16, 40},
          .random_models = 3,
          .greedy_steps = 1,
          .every_kind = false,
          .quantized = {"int8_dense", "int8_position_wise", "int8_experts"},
          .quantized_head = false,
          .threads = {2},
          .sequences = {1, 17, 33},
          .real_sizes = {{.head_dim = 64,
                          .heads = 3,
                          .kv_heads = 1,
                          .hidden = 72,
                          .intermediate = 136,
                          .vocab = 130,
                          .length = 35},
                         {.head_dim = 128,
                          .heads = 1,
                          .kv_heads = 1,
                          .hidden = 72,
                          .intermediate = 72,
                          .vocab = 70,
                          .length = 34},
                         {.head_dim = 256,
                          .heads = 1,
                          .kv_heads = 1,
                          .hidden = 72,
                          .intermediate = 72,
                          .vocab = 70,
                          .length = 34}},
          .families = FamiliesOfTests(),
          .disentangled = true};
}

}  // namespace sluice::testing
