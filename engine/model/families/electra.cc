// ELECTRA: BERT whose embedding may be narrower, with a classifier of two layers. Of a checkpoint
// that was trained as a discriminator, the states are served.
#include "engine/model/config_reader.h"
#include "engine/model/families/family.h"

namespace sluice {
namespace {

constexpr Architecture kElectraArchitectures[] = {
    {"ElectraForMaskedLM", "electra", OutputKind::kTokens},
    {"ElectraForSequenceClassification", "electra", OutputKind::kScores},
    {"ElectraForTokenClassification", "electra", OutputKind::kTokenScores},
    {"ElectraForQuestionAnswering", "electra", OutputKind::kAnswers},
    {"ElectraModel", "electra", OutputKind::kStates},
    {"ElectraForPreTraining", "electra", OutputKind::kStates},
};

void ReadElectra(ObjectReader& root, ModelConfig& config) {
  ReadBertLike(root, config);
  config.token_types = root.Integer("type_vocab_size", 1, kMaxWidth, 2);
  ReadEmbeddingWidth(root, 128, config);
  // An embedding of the model's own width has no dense layer.
  if (config.embedding_width == config.hidden_size) config.embedding_width = 0;
  UseClassifierOfTwoLayers(config);
  config.serving.classifier.activation = PoolerActivation::kGelu;
}

}  // namespace

const ModelFamily kElectraFamily = {
    .title = "ELECTRA",
    .architectures = kElectraArchitectures,
    .names =
        {
            .prefix = "electra.",
            .embedding = "embeddings.word_embeddings",
            .positions = "embeddings.position_embeddings",
            .token_types = "embeddings.token_type_embeddings",
            .embedding_norm = "embeddings.LayerNorm",
            .embedding_projection = "embeddings_project",
            .layer = "encoder.layer.",
            .projections = {"attention.self.query", "attention.self.key", "attention.self.value",
                            "attention.output.dense", "", "intermediate.dense", "output.dense"},
            .attention_norm = "attention.output.LayerNorm",
            .mlp_norm = "output.LayerNorm",
            .head_dense = "generator_predictions.dense",
            .head_norm = "generator_predictions.LayerNorm",
            .head = "generator_lm_head.weight",
            .head_bias = "generator_lm_head.bias",
        },
    .read = ReadElectra,
};

}  // namespace sluice
