// The cases of gpu_bench. Each case can run without the others.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/model/config.h"
#include "kernels/xsa_form.h"
#include "loadtest/gpu/bench.h"

namespace sluice::gpu {

// The sizes of the cases: larger than the caches for a GPU, small for a rehearsal in the emulator.
enum class Scale { kGpu, kRehearsal };

struct Case {
  std::string part;
  std::string id;
  std::function<void(Bench&)> run;
  bool records = false;  // whether a bench that only records launches can run it
  // The measurement of the case, without a value; absent if the case yields several.
  std::optional<Measurement> measures = std::nullopt;
};

// The sizes of an attention whose kernels are counted. Each sequence is whole.
struct XsaShape {
  int32_t sequences, tokens, q_heads, kv_heads, head_dim;
};
// Allocate inputs and return a launch: attention, with XSA in it unless `form` is kOff; and XSA by
// itself.
Launch AttentionWithXsa(Bench& bench, const XsaShape& shape, kernels::XsaForm form);
Launch XsaByItself(Bench& bench, const XsaShape& shape, kernels::XsaForm form);

// Makes a case of one measurement. `make` allocates inputs and returns a launch.
Case KernelCase(Measurement measurement, std::function<Launch(Bench&)> make);

std::vector<Case> CeilingCases(Scale scale);  // a copy, and a product of the library
std::vector<Case> RowCases(Scale scale);      // embedding, norms, RoPE, experts, XSA
std::vector<Case> ProductCases(Scale scale);  // projections, attention
std::vector<Case> DrawCases(Scale scale);     // sampling, top-k, reductions, small algebra
// Fills of a bucket by replay and by separate launches, for three sizes of models, both products.
std::vector<Case> BucketCases(Scale scale);
// Captures, replay against eager launches, and fill against a matched graph, with a random model.
std::vector<Case> PlanCases(Scale scale);
// Steps of an eighth of Llama-3-8B (see StepModel): decode, prefill and scoring.
std::vector<Case> StepCases(Scale scale);

// Returns the configuration of the model whose plans are timed.
ModelConfig BenchModel(Scale scale);
// Returns the configuration with an eighth of the work of Llama-3-8B: 4 of 32 layers, and 16,032 of
// 128,256 tokens.
ModelConfig StepModel(Scale scale);

}  // namespace sluice::gpu
