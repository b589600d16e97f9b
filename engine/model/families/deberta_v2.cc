// DeBERTa-v2 and v3: BERT with disentangled attention. The convolution of v2-xlarge is refused.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "engine/model/config_reader.h"
#include "engine/model/families/family.h"

namespace sluice {
namespace {

constexpr Architecture kDebertaV2Architectures[] = {
    {"DebertaV2ForMaskedLM", "deberta-v2", OutputKind::kTokens},
    {"DebertaV2ForSequenceClassification", "deberta-v2", OutputKind::kScores},
    {"DebertaV2ForTokenClassification", "deberta-v2", OutputKind::kTokenScores},
    {"DebertaV2ForQuestionAnswering", "deberta-v2", OutputKind::kAnswers},
    {"DebertaV2Model", "deberta-v2", OutputKind::kStates},
};

constexpr size_t kMaxWords = 64;

// Returns the terms that pos_att_type names, as a list or as words with bars between them.
std::vector<std::string> ReadTerms(ObjectReader& root) {
  const nlohmann::json* const value = root.Find("pos_att_type");
  std::vector<std::string> terms;
  if (value == nullptr) return terms;
  const nlohmann::json list = value->is_array() ? *value : nlohmann::json::array({*value});
  for (const nlohmann::json& words : list) {
    if (!words.is_string() || terms.size() > kMaxWords) {
      root.Fail("pos_att_type", "must be a list of \"c2p\" and \"p2c\"");
      return {};
    }
    for (const absl::string_view word :
         absl::StrSplit(words.get_ref<const std::string&>(), '|', absl::SkipWhitespace())) {
      terms.push_back(absl::AsciiStrToLower(absl::StripAsciiWhitespace(word)));
      if (terms.back() != "c2p" && terms.back() != "p2c") {
        root.Fail("pos_att_type", absl::StrCat("names \"", absl::CEscape(terms.back()),
                                               "\", which is not supported, must name only "
                                               "\"c2p\" and \"p2c\""));
        return {};
      }
    }
  }
  return terms;
}

// Reads the relative positions, and the scale of scores: one share for each term.
void ReadRelativePositions(ObjectReader& root, ModelConfig& config) {
  const std::vector<std::string> terms = ReadTerms(root);
  const bool queries = std::ranges::find(terms, "c2p") != terms.end();
  const bool keys = std::ranges::find(terms, "p2c") != terms.end();
  const int64_t shares = 1 + (queries ? 1 : 0) + (keys ? 1 : 0);
  config.score_scale =
      static_cast<float>(1 / std::sqrt(static_cast<double>(config.head_dim * shares)));
  const bool relative = root.Boolean("relative_attention", false);
  const int64_t buckets = root.Integer("position_buckets", -1, kMaxModelPositions, -1);
  const int64_t stated = root.Integer("max_relative_positions", -1, kMaxModelPositions, -1);
  const bool shared = root.Boolean("share_att_key", false);
  const bool norm = root.Choice("norm_rel_ebd", {"none", "layer_norm"}) == 1;
  if (!relative || shares == 1) return;
  const int64_t distance = stated < 1 ? config.max_positions : stated;
  config.disentangled = {.span = buckets > 0 ? buckets : distance,
                         .max_distance = buckets > 0 ? distance : 0,
                         .terms = !keys      ? RelativeTermKind::kQuery
                                  : !queries ? RelativeTermKind::kKey
                                             : RelativeTermKind::kBoth,
                         .shared = shared,
                         .norm = norm};
  CheckDisentangled(root, "position_buckets", "max_relative_positions", config);
}

void ReadPooler(ObjectReader& root, ModelConfig& config) {
  const Activation activation = ReadActivation(root, "pooler_hidden_act", "gelu");
  config.serving.classifier.activation =
      activation == Activation::kRelu ? PoolerActivation::kRelu : PoolerActivation::kGelu;
  const bool supported = activation == Activation::kRelu || activation == Activation::kGelu;
  config.serving.classifier.supported = supported;
  if (!supported && config.architecture == "DebertaV2ForSequenceClassification") {
    root.Fail("pooler_hidden_act", "is not supported, must be \"gelu\" or \"relu\"");
  }
}

// Refuses parts of some checkpoints that have no op.
void RefuseOtherParts(ObjectReader& root, const ModelConfig& config) {
  if (root.Integer("conv_kernel_size", 0, kMaxWidth, 0) != 0) {
    root.Fail("conv_kernel_size",
              "is not supported, must be 0: Sluice has no convolution between layers, as in "
              "deberta-v2-xlarge");
  }
  for (const char* const key : {"embedding_size", "pooler_hidden_size"}) {
    const int64_t size = root.Integer(key, 1, kMaxWidth, config.hidden_size);
    if (size == config.hidden_size) continue;
    root.Fail(key, absl::StrCat("is ", size, ", must be hidden_size ", config.hidden_size));
  }
  if (config.heads * config.head_dim != config.hidden_size) {
    root.Fail("attention_head_size",
              absl::StrCat("times num_attention_heads is ", config.heads * config.head_dim,
                           ", must be hidden_size ", config.hidden_size));
  }
  if (!root.Boolean("legacy", true) && config.has_lm_head) {
    root.Fail("legacy", "is not supported, must be true for DebertaV2ForMaskedLM");
  }
}

void ReadDebertaV2(ObjectReader& root, ModelConfig& config) {
  ReadSizes(root, config, {.head_dim = "attention_head_size", .fallback_positions = 512});
  SetBertLike(config);
  if (!root.Boolean("position_biased_input", true)) config.positions = PositionKind::kNone;
  config.norm.eps = ReadEps(root, "layer_norm_eps", 1e-7);
  config.activation = ReadActivation(root, "hidden_act", "gelu");
  config.head_activation = config.activation;
  config.tie_word_embeddings = root.Boolean("tie_word_embeddings", true);
  config.token_types = root.Integer("type_vocab_size", 0, kMaxWidth, 0);
  ReadRelativePositions(root, config);
  ReadPooler(root, config);
  RefuseOtherParts(root, config);
}

}  // namespace

const ModelFamily kDebertaV2Family = {
    .title = "DeBERTa-v2, v3",
    .architectures = kDebertaV2Architectures,
    .names =
        {
            .prefix = "deberta.",
            .embedding = "embeddings.word_embeddings",
            .positions = "embeddings.position_embeddings",
            .token_types = "embeddings.token_type_embeddings",
            .embedding_norm = "embeddings.LayerNorm",
            .layer = "encoder.layer.",
            .projections = {"attention.self.query_proj", "attention.self.key_proj",
                            "attention.self.value_proj", "attention.output.dense", "",
                            "intermediate.dense", "output.dense"},
            .attention_norm = "attention.output.LayerNorm",
            .mlp_norm = "output.LayerNorm",
            .relative_table = "encoder.rel_embeddings",
            .relative_norm = "encoder.LayerNorm",
            .relative_q = "attention.self.pos_query_proj",
            .relative_k = "attention.self.pos_key_proj",
            .head_dense = "cls.predictions.transform.dense",
            .head_norm = "cls.predictions.transform.LayerNorm",
            .head = "cls.predictions.decoder.weight",
            .head_bias = "cls.predictions.bias",
        },
    .read = ReadDebertaV2,
};

}  // namespace sluice
