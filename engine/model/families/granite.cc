// Granite 3: Llama with factors of the embedding, of scores, of branches and of logits; dense, or
// with experts in all layers.
#include "engine/model/config_reader.h"
#include "engine/model/families/family.h"

namespace sluice {
namespace {

constexpr Architecture kGraniteArchitectures[] = {
    {"GraniteForCausalLM", "granite", OutputKind::kTokens},
    {"GraniteModel", "granite", OutputKind::kStates},
};
constexpr Architecture kGraniteMoeArchitectures[] = {
    {"GraniteMoeForCausalLM", "granitemoe", OutputKind::kTokens},
    {"GraniteMoeModel", "granitemoe", OutputKind::kStates},
};
constexpr std::string_view kGraniteMoeKeys[] = {"attention_multiplier", "embedding_multiplier",
                                                "logits_scaling",       "residual_multiplier",
                                                "num_local_experts",    "num_experts_per_tok"};
constexpr std::string_view kGraniteKeys[] = {"attention_multiplier", "embedding_multiplier",
                                             "logits_scaling", "residual_multiplier"};
constexpr double kMinFactor = 1e-4, kMaxFactor = 1e4;

// The factor r of branches is moved to the embedding. If x is divided by r, and eps by r^2, the
// norms of x stay the same, and each branch is added without a factor.
void ReadGranite(ObjectReader& root, ModelConfig& config) {
  const auto factor = [&root](const char* key) {
    return root.Number(key, kMinFactor, kMaxFactor, 1);
  };
  ReadLlamaLike(root, config);
  config.qkv_bias = config.output_bias = root.Boolean("attention_bias", false);
  config.mlp_bias = root.Boolean("mlp_bias", false);
  const double branches = factor("residual_multiplier");
  config.norm.eps = static_cast<float>(config.norm.eps / (branches * branches));
  config.embedding_scale = static_cast<float>(factor("embedding_multiplier") / branches);
  config.score_scale = static_cast<float>(factor("attention_multiplier"));
  config.logit_scale = static_cast<float>(1 / factor("logits_scaling"));
}

void ReadGraniteMoe(ObjectReader& root, ModelConfig& config) {
  ReadGranite(root, config);
  ReadExperts(root, config, {.count = 8, .chosen = 2});
  config.experts.softmax = kernels::RouteSoftmax::kOfChosen;
}

constexpr TensorNames GraniteMoeNames() {
  TensorNames names = LlamaNames();
  names.experts = {.router = "block_sparse_moe.router.layer",
                   .tensors = ExpertTensors::kStacked,
                   .gate = "block_sparse_moe.input_linear",
                   .up = "block_sparse_moe.input_linear",
                   .down = "block_sparse_moe.output_linear"};
  return names;
}

}  // namespace

const ModelFamily kGraniteMoeFamily = {
    .title = "Granite MoE",
    .architectures = kGraniteMoeArchitectures,
    .names = GraniteMoeNames(),
    .read = ReadGraniteMoe,
    .own_keys = kGraniteMoeKeys,
};

const ModelFamily kGraniteFamily = {
    .title = "Granite",
    .architectures = kGraniteArchitectures,
    .names = LlamaNames(),
    .read = ReadGranite,
    .own_keys = kGraniteKeys,
};

}  // namespace sluice
