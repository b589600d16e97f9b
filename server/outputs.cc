#include "server/outputs.h"

#include "engine/request.h"

namespace sluice {
namespace {

// Which candidates belong to which row follows from the tokens.
constexpr uint32_t kTop = kOutputTopCandidates | kOutputTokens;

constexpr OutputInfo kOutputs[] = {
    {Output::kOutputIds, "output_ids", "INT32", -1, kOutputTokens, true, false},
    {Output::kSequenceLength, "sequence_length", "INT32", 1, kOutputTokens, true, false},
    {Output::kLogprobs, "logprobs", "FP32", -1, kOutputTokens, true, false},
    {Output::kFinishReason, "finish_reason", "BYTES", 1, kOutputTokens, true, false},
    {Output::kTextOutput, "text_output", "BYTES", 1, kOutputTokens, true, true},
    {Output::kTopIds, "top_ids", "INT32", -1, kTop, false, false},
    {Output::kTopLogprobs, "top_logprobs", "FP32", -1, kTop, false, false},
    {Output::kLogits, "logits", "FP32", -1, kOutputLogits, false, false},
    {Output::kPromptLogprobs, "prompt_logprobs", "FP32", -1, kOutputPromptLogprobs, false, false},
    {Output::kXsaCosSim, "xsa_cos_sim", "FP32", -1, kOutputDiagnostics, false, false},
    {Output::kXsaProjFrac, "xsa_proj_frac", "FP32", -1, kOutputDiagnostics, false, false},
};

}  // namespace

std::span<const OutputInfo> Outputs() { return kOutputs; }

const OutputInfo& InfoOf(Output output) { return kOutputs[static_cast<int>(output)]; }

const OutputInfo* FindOutput(std::string_view name, const Model& model) {
  for (const OutputInfo& info : kOutputs) {
    if (info.name != name) continue;
    const bool missing = (info.from_tokenizer && model.tokenizer == nullptr) ||
                         (info.mask == kOutputDiagnostics && !model.config.xsa.Any());
    return missing ? nullptr : &info;
  }
  return nullptr;
}

}  // namespace sluice
