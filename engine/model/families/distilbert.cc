// DistilBERT: BERT without token types, with a classifier after a dense layer and ReLU.
#include "engine/model/config_reader.h"
#include "engine/model/families/family.h"

namespace sluice {
namespace {

constexpr Architecture kDistilBertArchitectures[] = {
    {"DistilBertForMaskedLM", "distilbert", OutputKind::kTokens},
    {"DistilBertForSequenceClassification", "distilbert", OutputKind::kScores},
    {"DistilBertForTokenClassification", "distilbert", OutputKind::kTokenScores},
    {"DistilBertForQuestionAnswering", "distilbert", OutputKind::kAnswers},
    {"DistilBertModel", "distilbert", OutputKind::kStates},
};

void ReadDistilBert(ObjectReader& root, ModelConfig& config) {
  ReadSizes(
      root, config,
      {.hidden = "dim", .intermediate = "hidden_dim", .layers = "n_layers", .heads = "n_heads"});
  SetBertLike(config);
  config.norm.eps = 1e-12f;
  config.activation = ReadActivation(root, "activation", "gelu");
  config.head_activation = config.activation;
  config.tie_word_embeddings = root.Boolean("tie_word_embeddings", true);
  config.serving.classifier.activation = PoolerActivation::kRelu;
  config.serving.classifier.pooler_module = "pre_classifier";
}

}  // namespace

const ModelFamily kDistilBertFamily = {
    .title = "DistilBERT",
    .architectures = kDistilBertArchitectures,
    .names =
        {
            .prefix = "distilbert.",
            .embedding = "embeddings.word_embeddings",
            .positions = "embeddings.position_embeddings",
            .embedding_norm = "embeddings.LayerNorm",
            .layer = "transformer.layer.",
            .projections = {"attention.q_lin", "attention.k_lin", "attention.v_lin",
                            "attention.out_lin", "", "ffn.lin1", "ffn.lin2"},
            .attention_norm = "sa_layer_norm",
            .mlp_norm = "output_layer_norm",
            .head_dense = "vocab_transform",
            .head_norm = "vocab_layer_norm",
            .head = "vocab_projector.weight",
            .head_bias = "vocab_projector.bias",
        },
    .read = ReadDistilBert,
};

}  // namespace sluice
