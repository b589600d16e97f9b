// The supported families of checkpoints: the names of their architectures and tensors, and the
// conversion of their config.json to a ModelConfig. Each family is one file of this folder. The
// layer graph and the backends do not depend on families.
//
// A family reads its keys with ObjectReader and the parts of engine/model/config_reader.h. It
// refuses settings that a ModelConfig cannot express, and names them.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "base/json_reader.h"
#include "engine/model/config.h"
#include "engine/model/tensor_names.h"

namespace sluice {

// The output that an architecture computes from the states of its base model.
// kAnswers: two scores of each token, as the start and as the end of an answer.
// kVectors: a vector of each state, by a dense layer `linear`.
// kProjectedStates: states, of which a dense layer `linear` makes the embedding.
enum class OutputKind {
  kStates,
  kTokens,
  kScores,
  kTokenScores,
  kAnswers,
  kVectors,
  kProjectedStates
};

struct Architecture {
  const char* name;        // in "architectures"
  const char* model_type;  // in "model_type"
  OutputKind output;
  // Of a model that also reads images: the values of "model_type" in its object "text_config" that
  // are served, separated by spaces. The keys of that object are read in place of the file's.
  const char* text = "";
  // Whether it is code of the hub. It is computed if auto_map names it, whichever class of
  // transformers "architectures" names.
  bool of_hub = false;

  ClassifierOf classifier() const {
    if (output == OutputKind::kScores) return ClassifierOf::kRows;
    const bool tokens = output == OutputKind::kTokenScores || output == OutputKind::kAnswers;
    return tokens ? ClassifierOf::kTokens : ClassifierOf::kNothing;
  }
};

struct ModelFamily {
  const char* title;  // for documents
  std::span<const Architecture> architectures;
  TensorNames names;
  // Reads the keys of the family. The common keys (dtype, tokens, "sluice") are read afterwards.
  void (*read)(ObjectReader& root, ModelConfig& config);
  // Keys that `read` handles. Other families refuse them unless they have no effect.
  std::span<const std::string_view> own_keys = {};
  // Keys that published files have and that change no answer. transformers' class lacks them.
  std::span<const std::string_view> idle_keys = {};
  // The values of keys that a "text_config" may lack, in JSON, as in transformers' class.
  const char* text_defaults = "{}";
  // Whether the tensor names include position-wise layers, XSA and input adapters.
  bool takes_extensions = false;
  bool explicit_keys = false;  // Sluice's own keys
};

// Returns all families, in the order of docs/models.md.
std::span<const ModelFamily* const> AllFamilies();

extern const ModelFamily kSluiceFamily, kQwen2Family, kQwen3Family, kMistralFamily, kSmolLm3Family,
    kPhi3Family, kOlmo2Family, kOlmo3Family, kGemmaFamily, kGemma2Family, kGemma3Family,
    kGptNeoXFamily, kOptFamily, kGpt2Family, kBertFamily, kRobertaFamily, kDistilBertFamily,
    kMpnetFamily, kModernBertFamily, kNomicBertFamily, kGteFamily, kT5Family, kHstuFamily,
    kRankMixerFamily, kDebertaV2Family, kNewFamily, kEuroBertFamily, kPhiFamily, kStableLmFamily,
    kStarcoder2Family, kGraniteFamily, kElectraFamily, kAlbertFamily, kJinaBertFamily,
    kJinaV3Family, kMinistral3Family, kErnieFamily, kHunyuanFamily, kMixtralFamily, kQwen3MoeFamily,
    kOlmoeFamily, kGraniteMoeFamily;

// Llama's tensor names, which many families share or alter.
constexpr TensorNames LlamaNames() {
  return {
      .prefix = "model.",
      .embedding = "embed_tokens",
      .positions = "embed_positions",
      .embedding_norm = "embed_norm",
      .layer = "layers.",
      .projections = {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj",
                      "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"},
      .attention_norm = "input_layernorm",
      .mlp_norm = "post_attention_layernorm",
      .q_norm = "self_attn.q_norm",
      .k_norm = "self_attn.k_norm",
      .final_norm = "norm",
      .head = "lm_head.weight",
  };
}

// The names of experts that have a tensor for each matrix.
constexpr ExpertNames EachExpert(const char* router, const char* each, const char* gate,
                                 const char* up, const char* down) {
  return {.router = router, .each = each, .gate = gate, .up = up, .down = down};
}

// Llama's names with the norms of Gemma 2 and OLMo 2 after the branches.
constexpr TensorNames PostNormNames() {
  TensorNames names = LlamaNames();
  names.post_attention_norm = "post_attention_layernorm";
  names.mlp_norm = "pre_feedforward_layernorm";
  names.post_mlp_norm = "post_feedforward_layernorm";
  return names;
}

}  // namespace sluice
