// BERT, and the parts that its relatives share.
#include "engine/model/config_reader.h"
#include "engine/model/families/family.h"

namespace sluice {
namespace {

constexpr Architecture kBertArchitectures[] = {
    {"BertForMaskedLM", "bert", OutputKind::kTokens},
    {"BertForSequenceClassification", "bert", OutputKind::kScores},
    {"BertForTokenClassification", "bert", OutputKind::kTokenScores},
    {"BertForQuestionAnswering", "bert", OutputKind::kAnswers},
    {"BertModel", "bert", OutputKind::kStates},
    {"HF_ColBERT", "bert", OutputKind::kVectors},
};

void ReadBert(ObjectReader& root, ModelConfig& config) {
  ReadBertLike(root, config);
  config.head_activation = config.activation;
  config.token_types = root.Integer("type_vocab_size", 1, kMaxWidth, 2);
}

}  // namespace

const ModelFamily kBertFamily = {
    .title = "BERT",
    .architectures = kBertArchitectures,
    .names =
        {
            .prefix = "bert.",
            .embedding = "embeddings.word_embeddings",
            .positions = "embeddings.position_embeddings",
            .token_types = "embeddings.token_type_embeddings",
            .embedding_norm = "embeddings.LayerNorm",
            .layer = "encoder.layer.",
            .projections = {"attention.self.query", "attention.self.key", "attention.self.value",
                            "attention.output.dense", "", "intermediate.dense", "output.dense"},
            .attention_norm = "attention.output.LayerNorm",
            .mlp_norm = "output.LayerNorm",
            .head_dense = "cls.predictions.transform.dense",
            .head_norm = "cls.predictions.transform.LayerNorm",
            .head = "cls.predictions.decoder.weight",
            .head_bias = "cls.predictions.bias",
        },
    .read = ReadBert,
};

}  // namespace sluice
