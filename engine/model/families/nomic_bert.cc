// NomicBERT and GTE (v1.5): BERT with rotary positions and a gated MLP.
#include "engine/model/config_reader.h"
#include "engine/model/families/family.h"

namespace sluice {
namespace {

constexpr Architecture kNomicBertArchitectures[] = {
    {"NomicBertForMaskedLM", "nomic_bert", OutputKind::kTokens},
    {"NomicBertForTokenClassification", "nomic_bert", OutputKind::kTokenScores},
    {"NomicBertModel", "nomic_bert", OutputKind::kStates},
};
constexpr Architecture kGteArchitectures[] = {
    {"GteForMaskedLM", "gte", OutputKind::kTokens},
    {"GteForSequenceClassification", "gte", OutputKind::kScores},
    {"GteForTokenClassification", "gte", OutputKind::kTokenScores},
    {"GteModel", "gte", OutputKind::kStates},
};

void ReadRotatedBert(ObjectReader& root, ModelConfig& config, double theta, int64_t types) {
  ReadBertLike(root, config);
  config.positions = PositionKind::kRope;
  config.gated_mlp = true;
  config.token_types = root.Integer("type_vocab_size", 0, kMaxWidth, types);
  ReadRope(root, config, {.theta = theta});
}

void ReadNomicBert(ObjectReader& root, ModelConfig& config) {
  if (root.Has("n_embd"))
    root.Fail("n_embd", "is not supported; expected the keys that transformers writes");
  ReadRotatedBert(root, config, 1000, 2);
  config.activation = ReadActivation(root, "hidden_act", "silu");
  config.head_activation = config.activation;
  config.qkv_bias = config.output_bias = config.mlp_bias = false;
}

void ReadGte(ObjectReader& root, ModelConfig& config) {
  ReadRotatedBert(root, config, 160000, 1);
  config.mlp_bias = false;
  config.down_bias = true;
}

}  // namespace

const ModelFamily kNomicBertFamily = {
    .title = "NomicBERT",
    .architectures = kNomicBertArchitectures,
    .names =
        {
            .prefix = "nomic_bert.",
            .embedding = "embeddings.word_embeddings",
            .token_types = "embeddings.token_type_embeddings",
            .embedding_norm = "emb_ln",
            .layer = "encoder.layers.",
            .projections = {"attn.Wqkv", "attn.Wqkv", "attn.Wqkv", "attn.out_proj", "mlp.fc12",
                            "mlp.fc11", "mlp.fc2"},
            .fused_qkv = FusedQkv::kInTurn,
            .attention_norm = "norm1",
            .mlp_norm = "norm2",
            .head_dense = "cls.predictions.transform.dense",
            .head_norm = "cls.predictions.transform.layer_norm",
            .head = "cls.predictions.decoder.weight",
            .head_bias = "cls.predictions.bias",
        },
    .read = ReadNomicBert,
};

const ModelFamily kGteFamily = {
    .title = "GTE",
    .architectures = kGteArchitectures,
    .names =
        {
            .prefix = "gte.",
            .embedding = "embeddings.word_embeddings",
            .token_types = "embeddings.token_type_embeddings",
            .embedding_norm = "embeddings.LayerNorm",
            .layer = "encoder.layer.",
            .projections = {"attention.qkv_proj", "attention.qkv_proj", "attention.qkv_proj",
                            "attention.o_proj", "mlp.up_gate_proj", "mlp.up_gate_proj",
                            "mlp.down_proj"},
            .fused_qkv = FusedQkv::kInTurn,
            .fused_gate_up = FusedGateUp::kUpFirst,
            .attention_norm = "attn_ln",
            .mlp_norm = "mlp_ln",
            .head_dense = "lm_head.dense",
            .head_norm = "lm_head.norm",
            .head = "lm_head.decoder.weight",
            .head_bias = "lm_head.decoder.bias",
        },
    .read = ReadGte,
};

}  // namespace sluice
