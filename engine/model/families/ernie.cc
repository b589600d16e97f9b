// Ernie 4.5 (dense): Llama whose rotated pairs are neighbours.
#include "engine/model/config_reader.h"
#include "engine/model/families/family.h"

namespace sluice {
namespace {

constexpr Architecture kErnieArchitectures[] = {
    {"Ernie4_5ForCausalLM", "ernie4_5", OutputKind::kTokens},
    {"Ernie4_5_ForCausalLM", "ernie4_5", OutputKind::kTokens},  // of the first published files
    {"Ernie4_5Model", "ernie4_5", OutputKind::kStates},
};

void ReadErnie(ObjectReader& root, ModelConfig& config) {
  ReadLlamaLike(root, config, {.theta = 500000},
                {.head_dim = 128, .kv_heads = 2, .eps = 1e-5, .tied = true});
  config.qkv_bias = config.output_bias = config.mlp_bias = root.Boolean("use_bias", false);
  config.rope.neighbours = true;
}

}  // namespace

const ModelFamily kErnieFamily = {
    .title = "Ernie 4.5",
    .architectures = kErnieArchitectures,
    .names = LlamaNames(),
    .read = ReadErnie,
};

}  // namespace sluice
