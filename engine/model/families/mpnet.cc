// MPNet: RoBERTa's positions and heads, and a table of relative positions added to scores.
#include "engine/model/config_reader.h"
#include "engine/model/families/family.h"

namespace sluice {
namespace {

constexpr Architecture kMpnetArchitectures[] = {
    {"MPNetForMaskedLM", "mpnet", OutputKind::kTokens},
    {"MPNetForSequenceClassification", "mpnet", OutputKind::kScores},
    {"MPNetForTokenClassification", "mpnet", OutputKind::kTokenScores},
    {"MPNetForQuestionAnswering", "mpnet", OutputKind::kAnswers},
    {"MPNetModel", "mpnet", OutputKind::kStates},
};

void ReadMpnet(ObjectReader& root, ModelConfig& config) {
  ReadBertLike(root, config);
  OffsetPositions(root, config);
  UseClassifierOfTwoLayers(config);
  ReadRelativeBias(root, "relative_attention_num_buckets", nullptr, config);
}

}  // namespace

const ModelFamily kMpnetFamily = {
    .title = "MPNet",
    .architectures = kMpnetArchitectures,
    .names =
        {
            .prefix = "mpnet.",
            .embedding = "embeddings.word_embeddings",
            .positions = "embeddings.position_embeddings",
            .embedding_norm = "embeddings.LayerNorm",
            .layer = "encoder.layer.",
            .projections = {"attention.attn.q", "attention.attn.k", "attention.attn.v",
                            "attention.attn.o", "", "intermediate.dense", "output.dense"},
            .attention_norm = "attention.LayerNorm",
            .mlp_norm = "output.LayerNorm",
            .relative_bias = "encoder.relative_attention_bias",
            .head_dense = "lm_head.dense",
            .head_norm = "lm_head.layer_norm",
            .head = "lm_head.decoder.weight",
            .head_bias = "lm_head.bias",
        },
    .read = ReadMpnet,
};

}  // namespace sluice
