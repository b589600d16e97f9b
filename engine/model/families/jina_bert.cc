// Jina's encoders. jina-embeddings-v2 is BERT with ALiBi and a gated MLP, under the keys of the
// code on the hub. jina-embeddings-v3 is XLM-RoBERTa with rotary positions; its checkpoint, as
// published, also has low-rank adapters for tasks.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/str_cat.h"
#include "engine/model/adapter_limits.h"
#include "engine/model/config_reader.h"
#include "engine/model/families/family.h"
#include "engine/model/repository.h"

namespace sluice {
namespace {

constexpr Architecture kJinaBertArchitectures[] = {
    {"JinaBertForMaskedLM", "bert", OutputKind::kTokens},
    {"JinaBertForSequenceClassification", "bert", OutputKind::kScores},
    {"JinaBertForTokenClassification", "bert", OutputKind::kTokenScores},
    {"JinaBertModel", "bert", OutputKind::kStates},
};
constexpr Architecture kJinaV3Architectures[] = {
    {"JinaEmbeddingsV3ForMaskedLM", "jina_embeddings_v3", OutputKind::kTokens},
    {"JinaEmbeddingsV3ForSequenceClassification", "jina_embeddings_v3", OutputKind::kScores},
    {"JinaEmbeddingsV3ForTokenClassification", "jina_embeddings_v3", OutputKind::kTokenScores},
    {"JinaEmbeddingsV3ForQuestionAnswering", "jina_embeddings_v3", OutputKind::kAnswers},
    {"JinaEmbeddingsV3Model", "jina_embeddings_v3", OutputKind::kStates},
    {"XLMRobertaLoRA", "xlm-roberta", OutputKind::kStates, "", /*of_hub=*/true},
};
constexpr std::string_view kJinaV3Keys[] = {"position_embedding_type"};
constexpr std::string_view kJinaV3IdleKeys[] = {"emb_pooler",
                                                "lora_dropout_p",
                                                "lora_main_params_trainable",
                                                "matryoshka_dimensions",
                                                "output_past",
                                                "truncate_dim",
                                                "use_flash_attn",
                                                "use_reentrant"};
constexpr size_t kMaxTasks = 64;
constexpr size_t kMaxInstructionBytes = 4096;
constexpr std::string_view kJinaBertKeys[] = {"position_embedding_type"};
constexpr std::string_view kJinaBertIdleKeys[] = {"attn_implementation", "emb_pooler"};

void ReadJinaBert(ObjectReader& root, ModelConfig& config) {
  ReadBertLike(root, config);
  config.positions = PositionKind::kNone;
  config.relative_bias.alibi = true;
  config.token_types = root.Integer("type_vocab_size", 1, kMaxWidth, 2);
  const int kind = root.Choice("feed_forward_type", {"original", "geglu", "reglu"});
  if (kind == 0) {
    root.Fail("feed_forward_type", "is not supported, must be \"geglu\" or \"reglu\"");
  }
  if (root.Choice("position_embedding_type", {"absolute", "alibi"}) == 0) {
    root.Fail("position_embedding_type", "is not supported, must be \"alibi\"");
  }
  config.head_activation = config.activation;
  config.activation = kind == 1 ? Activation::kGelu : Activation::kRelu;
  config.gated_mlp = true;
  config.mlp_bias = false;
  config.down_bias = true;
}

// Reads the names of the checkpoint's own adapters, and their prompts.
void ReadTasks(ObjectReader& root, ModelConfig& config) {
  const nlohmann::json* const names = root.Find("lora_adaptations");
  TaskAdaptersConfig& tasks = config.task_adapters;
  tasks.rank = root.Integer("lora_rank", 1, kMaxAdapterRank, 4);
  tasks.scale = root.Number("lora_alpha", 0, kMaxAdapterAlpha, 1) / static_cast<double>(tasks.rank);
  if (!root.Boolean("load_trained_adapters", false) || names == nullptr) return;
  const auto valid = [](const nlohmann::json& name) {
    return name.is_string() && IsRepositoryName(name.get_ref<const std::string&>());
  };
  if (!names->is_array() || names->size() > kMaxTasks || !std::ranges::all_of(*names, valid)) {
    root.Fail(
        "lora_adaptations",
        absl::StrCat("must be a list of up to ", kMaxTasks,
                     " names of the characters A-Z a-z 0-9 _ . -, without a dot at the start"));
    return;
  }
  ObjectReader instructions = root.Object("task_instructions");
  for (const nlohmann::json& each : *names) {
    const auto& name = each.get_ref<const std::string&>();
    if (std::ranges::count(tasks.names, name) > 0) {
      root.Fail("lora_adaptations", "has a name twice");
    }
    tasks.names.push_back(name);
    config.serving.prompts.push_back(
        {name, instructions.String(name, kMaxInstructionBytes, std::string())});
  }
}

void ReadJinaV3(ObjectReader& root, ModelConfig& config) {
  const bool published = config.architecture == "XLMRobertaLoRA";
  ReadBertLike(root, config);
  config.norm.eps = ReadEps(root, "layer_norm_eps", 1e-5);
  config.positions = PositionKind::kRope;
  config.token_types = root.Integer("type_vocab_size", 1, kMaxWidth, 1);
  UseClassifierOfTwoLayers(config);
  const int positions = root.Choice("position_embedding_type", {"absolute", "rotary"});
  if (published && positions == 0) {
    root.Fail("position_embedding_type", "is not supported, must be \"rotary\"");
  }
  if (published) {
    ReadRope(root, config, {.theta_key = "rotary_emb_base", .theta = 10000});
    ReadTasks(root, config);
  } else {
    ReadRope(root, config, {.theta = 20000});
  }
}

}  // namespace

const ModelFamily kJinaBertFamily = {
    .title = "JinaBERT (v2)",
    .architectures = kJinaBertArchitectures,
    .names =
        {
            .prefix = "bert.",
            .embedding = "embeddings.word_embeddings",
            .token_types = "embeddings.token_type_embeddings",
            .embedding_norm = "embeddings.LayerNorm",
            .layer = "encoder.layer.",
            .projections = {"attention.self.query", "attention.self.key", "attention.self.value",
                            "attention.output.dense", "mlp.gated_layers", "mlp.gated_layers",
                            "mlp.wo"},
            .fused_gate_up = FusedGateUp::kGateFirst,
            .attention_norm = "attention.output.LayerNorm",
            .mlp_norm = "mlp.layernorm",
            .head_dense = "cls.predictions.transform.dense",
            .head_norm = "cls.predictions.transform.LayerNorm",
            .head = "cls.predictions.decoder.weight",
            .head_bias = "cls.predictions.bias",
        },
    .read = ReadJinaBert,
    .own_keys = kJinaBertKeys,
    .idle_keys = kJinaBertIdleKeys,
};

const ModelFamily kJinaV3Family = {
    .title = "Jina embeddings v3",
    .architectures = kJinaV3Architectures,
    .names =
        {
            .prefix = "roberta.",
            .embedding = "embeddings.word_embeddings",
            .token_types = "embeddings.token_type_embeddings",
            .embedding_norm = "emb_ln",
            .layer = "encoder.layers.",
            .projections = {"mixer.Wqkv", "mixer.Wqkv", "mixer.Wqkv", "mixer.out_proj", "",
                            "mlp.fc1", "mlp.fc2"},
            .fused_qkv = FusedQkv::kInTurn,
            .attention_norm = "norm1",
            .mlp_norm = "norm2",
            .head_dense = "lm_head.dense",
            .head_norm = "lm_head.layer_norm",
            .head = "lm_head.decoder.weight",
            .head_bias = "lm_head.bias",
        },
    .read = ReadJinaV3,
    .own_keys = kJinaV3Keys,
    .idle_keys = kJinaV3IdleKeys,
};

}  // namespace sluice
