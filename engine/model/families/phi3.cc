// Phi-3 and Phi-4: Llama with q, k and v in one matrix, gate and up in another.
#include "engine/model/config_reader.h"
#include "engine/model/families/family.h"

namespace sluice {
namespace {

constexpr Architecture kPhi3Architectures[] = {
    {"Phi3ForCausalLM", "phi3", OutputKind::kTokens},
    {"Phi3ForSequenceClassification", "phi3", OutputKind::kScores},
    {"Phi3ForTokenClassification", "phi3", OutputKind::kTokenScores},
    {"Phi3Model", "phi3", OutputKind::kStates},
};
constexpr std::string_view kPhi3Keys[] = {"partial_rotary_factor", "sliding_window"};

void ReadPhi3(ObjectReader& root, ModelConfig& config) {
  ReadLlamaLike(root, config, {.part_key = "partial_rotary_factor", .trained_positions = 4096},
                {.eps = 1e-5});
  ReadWindows(
      root, config, [](int64_t) { return true; }, /*absent=*/0);
}

constexpr TensorNames Phi3Names() {
  TensorNames names = LlamaNames();
  for (const int qkv : {0, 1, 2}) names.projections[qkv] = "self_attn.qkv_proj";
  names.projections[4] = names.projections[5] = "mlp.gate_up_proj";
  names.fused_qkv = FusedQkv::kInTurn;
  names.fused_gate_up = FusedGateUp::kGateFirst;
  return names;
}

}  // namespace

const ModelFamily kPhi3Family = {
    .title = "Phi-3",
    .architectures = kPhi3Architectures,
    .names = Phi3Names(),
    .read = ReadPhi3,
    .own_keys = kPhi3Keys,
};

}  // namespace sluice
