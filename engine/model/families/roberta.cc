// RoBERTa, XLM-RoBERTa and CamemBERT: BERT with positions from the padding id + 1 on and a
// classifier of two layers.
#include "engine/model/config_reader.h"
#include "engine/model/families/family.h"

namespace sluice {
namespace {

constexpr Architecture kRobertaArchitectures[] = {
    {"RobertaForMaskedLM", "roberta", OutputKind::kTokens},
    {"RobertaForSequenceClassification", "roberta", OutputKind::kScores},
    {"RobertaForTokenClassification", "roberta", OutputKind::kTokenScores},
    {"RobertaForQuestionAnswering", "roberta", OutputKind::kAnswers},
    {"RobertaModel", "roberta", OutputKind::kStates},
    {"XLMRobertaForMaskedLM", "xlm-roberta", OutputKind::kTokens},
    {"XLMRobertaForSequenceClassification", "xlm-roberta", OutputKind::kScores},
    {"XLMRobertaForTokenClassification", "xlm-roberta", OutputKind::kTokenScores},
    {"XLMRobertaForQuestionAnswering", "xlm-roberta", OutputKind::kAnswers},
    {"XLMRobertaModel", "xlm-roberta", OutputKind::kStates},
    {"CamembertForMaskedLM", "camembert", OutputKind::kTokens},
    {"CamembertForSequenceClassification", "camembert", OutputKind::kScores},
    {"CamembertForTokenClassification", "camembert", OutputKind::kTokenScores},
    {"CamembertForQuestionAnswering", "camembert", OutputKind::kAnswers},
    {"CamembertModel", "camembert", OutputKind::kStates},
};

void ReadRoberta(ObjectReader& root, ModelConfig& config) {
  ReadBertLike(root, config);
  OffsetPositions(root, config);
  config.token_types = root.Integer("type_vocab_size", 1, kMaxWidth, 2);
  UseClassifierOfTwoLayers(config);
}

}  // namespace

const ModelFamily kRobertaFamily = {
    .title = "RoBERTa, XLM-RoBERTa, CamemBERT",
    .architectures = kRobertaArchitectures,
    .names =
        {
            .prefix = "roberta.",
            .embedding = "embeddings.word_embeddings",
            .positions = "embeddings.position_embeddings",
            .token_types = "embeddings.token_type_embeddings",
            .embedding_norm = "embeddings.LayerNorm",
            .layer = "encoder.layer.",
            .projections = {"attention.self.query", "attention.self.key", "attention.self.value",
                            "attention.output.dense", "", "intermediate.dense", "output.dense"},
            .attention_norm = "attention.output.LayerNorm",
            .mlp_norm = "output.LayerNorm",
            .head_dense = "lm_head.dense",
            .head_norm = "lm_head.layer_norm",
            .head = "lm_head.decoder.weight",
            .head_bias = "lm_head.bias",
        },
    .read = ReadRoberta,
};

}  // namespace sluice
