// HSTU (arXiv 2402.17152), a recommender of items. Values are weighted by SiLU of scores, without a
// softmax, and the output of attention is gated. There is no MLP. Names and keys are from the
// authors' `generative_recommenders`; biases by time stamps are refused.
#include <cmath>

#include "engine/model/config_reader.h"
#include "engine/model/families/family.h"

namespace sluice {
namespace {

constexpr Architecture kHstuArchitectures[] = {
    {"HSTUForCausalLM", "hstu", OutputKind::kTokens},
    {"HSTUForSequenceClassification", "hstu", OutputKind::kScores},
    {"HSTUModel", "hstu", OutputKind::kStates},
};

void ReadHstu(ObjectReader& root, ModelConfig& config) {
  ReadSizes(root, config, {.head_dim = "attention_dim", .intermediate_factor = 1});
  if (root.Integer("linear_dim", 1, kMaxWidth, config.head_dim) != config.head_dim) {
    root.Fail("linear_dim", "must be attention_dim");
  }
  root.Choice("linear_config", {"uvqk"});
  root.Choice("linear_activation", {"silu"});
  root.Choice("normalization", {"rel_bias", "hstu_rel_bias"});
  for (const char* const key : {"concat_ua", "enable_relative_attention_bias"}) {
    if (root.Boolean(key, false)) root.Fail(key, "must be false");
  }
  config.positions = PositionKind::kLearned;
  config.position_rows = config.max_positions;
  config.norm = {.kind = NormKind::kLayer,
                 .eps = ReadEps(root, "epsilon", 1e-6),
                 .weight = false,
                 .final = false};
  config.score_scale = 1;
  config.attention_divisor = root.Number("attention_divisor", 1, 1e9, config.max_positions);
  config.attention_gate = config.qkv_silu = true;
  config.output_bias = true;
  config.has_mlp = config.gated_mlp = false;
  config.embedding_scale = static_cast<float>(std::sqrt(config.hidden_size));
  config.tie_word_embeddings = root.Boolean("tie_word_embeddings", true);
  config.serving.classifier = {.pooling = Pooling::kLast, .module = "score"};
}

}  // namespace

const ModelFamily kHstuFamily = {
    .title = "HSTU",
    .architectures = kHstuArchitectures,
    .names =
        {
            .embedding = "_embedding_module._item_emb",
            .positions = "_input_features_preproc._pos_emb",
            .layer = "_hstu._attention_layers.",
            .projections = {"_uvqk", "", "", "_o", "", "", ""},
            .fused_qkv = FusedQkv::kGateFirst,
            .head = "lm_head.weight",
        },
    .read = ReadHstu,
};

}  // namespace sluice
