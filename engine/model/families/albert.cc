// ALBERT: BERT with a narrower embedding, whose layers share their weights.
#include "engine/model/config_reader.h"
#include "engine/model/families/family.h"

namespace sluice {
namespace {

constexpr Architecture kAlbertArchitectures[] = {
    {"AlbertForMaskedLM", "albert", OutputKind::kTokens},
    {"AlbertForSequenceClassification", "albert", OutputKind::kScores},
    {"AlbertForTokenClassification", "albert", OutputKind::kTokenScores},
    {"AlbertForQuestionAnswering", "albert", OutputKind::kAnswers},
    {"AlbertModel", "albert", OutputKind::kStates},
};

void ReadAlbert(ObjectReader& root, ModelConfig& config) {
  ReadBertLike(root, config);
  config.activation = config.head_activation = ReadActivation(root, "hidden_act", "gelu_new");
  config.token_types = root.Integer("type_vocab_size", 1, kMaxWidth, 2);
  config.layer_groups = root.Integer("num_hidden_groups", 1, config.layers, 1);
  if (root.Integer("inner_group_num", 1, kMaxLayers, 1) != 1) {
    root.Fail("inner_group_num", "is not supported, must be 1");
  }
  ReadEmbeddingWidth(root, 128, config);
  config.serving.classifier.pooler_module = "pooler";
}

}  // namespace

const ModelFamily kAlbertFamily = {
    .title = "ALBERT",
    .architectures = kAlbertArchitectures,
    .names =
        {
            .prefix = "albert.",
            .embedding = "embeddings.word_embeddings",
            .positions = "embeddings.position_embeddings",
            .token_types = "embeddings.token_type_embeddings",
            .embedding_norm = "embeddings.LayerNorm",
            .embedding_projection = "encoder.embedding_hidden_mapping_in",
            .layer = "encoder.albert_layer_groups.",
            .in_layer = "albert_layers.0.",
            .projections = {"attention.query", "attention.key", "attention.value",
                            "attention.dense", "", "ffn", "ffn_output"},
            .attention_norm = "attention.LayerNorm",
            .mlp_norm = "full_layer_layer_norm",
            .head_dense = "predictions.dense",
            .head_norm = "predictions.LayerNorm",
            .head = "predictions.decoder.weight",
            .head_bias = "predictions.bias",
        },
    .read = ReadAlbert,
};

}  // namespace sluice
