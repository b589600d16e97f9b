// OLMo 2 and 3: Llama with norms after attention and MLP, and norms of q and k over all heads.
// OLMoE: norms before attention and experts, and the same norms of q and k.
#include "engine/model/config_reader.h"
#include "engine/model/families/family.h"

namespace sluice {
namespace {

constexpr Architecture kOlmo2Architectures[] = {
    {"Olmo2ForCausalLM", "olmo2", OutputKind::kTokens},
    {"Olmo2ForSequenceClassification", "olmo2", OutputKind::kScores},
    {"Olmo2Model", "olmo2", OutputKind::kStates},
};
constexpr Architecture kOlmo3Architectures[] = {
    {"Olmo3ForCausalLM", "olmo3", OutputKind::kTokens},
    {"Olmo3ForSequenceClassification", "olmo3", OutputKind::kScores},
    {"Olmo3Model", "olmo3", OutputKind::kStates},
};
constexpr Architecture kOlmoeArchitectures[] = {
    {"OlmoeForCausalLM", "olmoe", OutputKind::kTokens},
    {"OlmoeModel", "olmoe", OutputKind::kStates},
};
constexpr std::string_view kOlmoeKeys[] = {"num_experts", "num_local_experts",
                                           "num_experts_per_tok"};
constexpr std::string_view kOlmo3Keys[] = {"layer_types", "sliding_window"};

void ReadOlmo(ObjectReader& root, ModelConfig& config, const RopeKeys& rope) {
  ReadLlamaLike(root, config, rope, {.eps = 1e-5});
  config.qkv_bias = config.output_bias = root.Boolean("attention_bias", false);
  config.norm.order = NormOrder::kAfter;
  UseQkNorm(config, QkNormWeight::kAll);
}

void ReadOlmo2(ObjectReader& root, ModelConfig& config) { ReadOlmo(root, config, {}); }

// Three of four layers have a window, unless layer_types states otherwise. Their rotary positions
// are not scaled.
void ReadOlmo3(ObjectReader& root, ModelConfig& config) {
  constexpr double kTheta = 500000;
  ReadOlmo(root, config, {.theta = kTheta});
  ReadWindows(root, config, [](int64_t layer) { return (layer + 1) % 4 != 0; });
  ReadLocalRope(root, config, {.theta_key = "rope_theta", .theta = kTheta});
}

void ReadOlmoe(ObjectReader& root, ModelConfig& config) {
  ReadOlmo(root, config, {});
  config.norm.order = NormOrder::kPre;
  ReadExperts(root, config, {.count = 64, .chosen = 8});
  if (root.Boolean("norm_topk_prob", false)) {
    config.experts.softmax = kernels::RouteSoftmax::kOfChosen;
  }
}

constexpr TensorNames OlmoeNames() {
  TensorNames names = LlamaNames();
  names.experts = EachExpert("mlp.gate", "mlp.experts.", "gate_proj", "up_proj", "down_proj");
  return names;
}

}  // namespace

const ModelFamily kOlmoeFamily = {
    .title = "OLMoE",
    .architectures = kOlmoeArchitectures,
    .names = OlmoeNames(),
    .read = ReadOlmoe,
    .own_keys = kOlmoeKeys,
};

const ModelFamily kOlmo2Family = {
    .title = "OLMo 2",
    .architectures = kOlmo2Architectures,
    .names = PostNormNames(),
    .read = ReadOlmo2,
};

const ModelFamily kOlmo3Family = {
    .title = "OLMo 3",
    .architectures = kOlmo3Architectures,
    .names = PostNormNames(),
    .read = ReadOlmo3,
    .own_keys = kOlmo3Keys,
};

}  // namespace sluice
