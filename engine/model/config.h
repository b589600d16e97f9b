// A model's architecture, read from a Hugging Face style config.json.
//
// `architectures` names the family:
//   LlamaForCausalLM, Qwen2ForCausalLM   keys and tensor names as Hugging Face has them
//   GPT2LMHeadModel, GPT2Model           likewise
//   BertForMaskedLM, BertForSequenceClassification, BertModel   likewise
//   SluiceForCausalLM, SluiceModel       explicit: sizes under Llama's keys, the rest in "sluice"
//
// Every family reads in the object "sluice":
//   "tokenizer": "byte" | "none"            byte: ids 0..255 are bytes; bos/eos from the config's
//                                           ids; none: no texts; absent: by the tokenizer's files
//   "input": {                              float rows in the place of token ids
//     "kind": "ids" | "embeds" | "both",    what a request may send
//     "width": n,                           values of a row; default hidden_size
//     "adapter": "none" | "dense" | "position_wise",   brings a row to hidden_size; none: as it is
//     "bias": false }                       of a dense adapter
// With the tensor names of Llama (Llama, Qwen2, Sluice) also:
//   "position_wise": {
//     "projections": {"q": [layers], "k": [..], "v": [..], "o": [..],
//                     "gate": [..], "up": [..], "down": [..]},
//     "max_positions": L,                   bounds the sequence; tensors are [L, in, out]
//     "bias": "none" | "e" | "le" }         none, [out], or [L, out]
//   "xsa": {
//     "layers": [..], "form": "norm" | "squared", "eps": 1e-6, "gate": "none" | "tanh" }
// and the Sluice architectures alone (each key's default first):
//   "norm": {
//     "kind": "rms" | "layer", "eps": 1e-6,
//     "weight": true, "bias": false,        bias: layer norm only
//     "order": "pre" | "post" | "query",    see NormOrder
//     "embedding": false, "final": true,    norms after the embedding and after the last layer
//     "depth_scale": false }                layer n's norms times 1/sqrt(n + 1)
//   "positions": {
//     "kind": "rope" | "learned" | "none",
//     "dims": head_dim, "reversed": false,  rope: rotated features of a head; by -angle
//     "offset": 0 }                         learned: row of position 0
//   "attention": {
//     "causal": true,
//     "qk_norm": false,                     q and k heads over their root mean square, before rope
//     "qk_norm_eps": 1.1920929e-07,
//     "query_gain": false }                 each query head times a learned number
//   "mlp": {
//     "activation": "silu" | "gelu" | "gelu_tanh" | "relu" | "squared_relu",
//     "gated": true }                       act(x G) * (x U), else act(x U)
//   "biases": {"qkv": false, "o": false, "mlp": false, "head": false}
//   "block": "sequential" | "parallel"      parallel: x + attention(n(x)) + mlp(n(x)), one norm
//   "branch_scale": false                   attention's and the MLP's output times vectors
//   "residual_mix": false                   x = m0 * x + m1 * x0 before each layer, x0: embedded
//   "skip_weights": false                   U-Net: x += w[i] * what layer (first half - 1 - i) gave
//   "embedding_scale": 1.0                  of token embeddings
//   "logit_soft_cap": 0                     c tanh(logits / c); 0: none
// What prompts and outputs are like is in the same object: engine/model/serving_config.h.
// Unknown keys inside "sluice" are errors; unknown keys of the families are ignored as in every
// reader of such files, but keys that would change the result and are not supported are errors.
// Tensor names: engine/model/tensor_names.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/enum_names.h"
#include "engine/model/serving_config.h"
#include "kernels/activation_kind.h"

// Beside its user, as CUDA's compiler reads activation_kind.h.
namespace sluice::kernels {
constexpr auto EnumNamesOf(Activation) {
  using enum Activation;
  return EnumNameTable<Activation>({{kSilu, "silu"},
                                    {kGelu, "gelu"},
                                    {kGeluTanh, "gelu_tanh"},
                                    {kRelu, "relu"},
                                    {kSquaredRelu, "squared_relu"}});
}
}  // namespace sluice::kernels

namespace sluice {

enum class Family { kLlama, kQwen2, kGpt2, kBert, kSluice };

enum class Projection { kQ, kK, kV, kO, kGate, kUp, kDown };
inline constexpr int kProjections = 7;

enum class PositionWiseBias { kNone, kFeature, kPositionFeature };
constexpr auto EnumNamesOf(PositionWiseBias) {
  using enum PositionWiseBias;
  return EnumNameTable<PositionWiseBias>(
      {{kNone, "none"}, {kFeature, "e"}, {kPositionFeature, "le"}});
}

struct PositionWiseConfig {
  std::vector<bool> layers[kProjections];  // [layers] each: is that projection position-wise?
  bool input_adapter = false;
  int64_t max_positions = 0;
  PositionWiseBias bias = PositionWiseBias::kNone;

  bool Any() const;
};

struct XsaConfig {
  enum class Form { kNorm, kSquared };
  std::vector<bool> layers;  // [layers]
  Form form = Form::kNorm;
  float eps = 1e-6f;
  bool gate = false;  // tanh(alpha_h), tensor self_attn.xsa_alpha [heads]

  bool Any() const;
};
constexpr auto EnumNamesOf(XsaConfig::Form) {
  using enum XsaConfig::Form;
  return EnumNameTable<XsaConfig::Form>({{kNorm, "norm"}, {kSquared, "squared"}});
}

enum class PositionKind { kRope, kLearned, kNone };
constexpr auto EnumNamesOf(PositionKind) {
  using enum PositionKind;
  return EnumNameTable<PositionKind>({{kRope, "rope"}, {kLearned, "learned"}, {kNone, "none"}});
}

struct RopeConfig {
  double theta = 10000.0;
  int64_t dims = 0;       // rotated features at the front of a head; 0: all
  bool reversed = false;  // rotates by -angle
  // llama3 frequency scaling (Llama 3.1); absent: none.
  struct Llama3 {
    double factor;
    double low_freq_factor;
    double high_freq_factor;
    int64_t original_max_positions;
  };
  std::optional<Llama3> llama3;
};

enum class NormKind { kRms, kLayer };
constexpr auto EnumNamesOf(NormKind) {
  using enum NormKind;
  return EnumNameTable<NormKind>({{kRms, "rms"}, {kLayer, "layer"}});
}

// Where a layer's norms n stand, for its branches f (attention, then the MLP):
//   kPre:    x += f(n(x)), as GPT-2 and Llama
//   kPost:   x = n(x + f(x)), as BERT
//   kQuery:  y = n1(x); x = y + attention(q of y; k and v of x); x = n2(x); x += mlp(x), as SASRec
enum class NormOrder { kPre, kPost, kQuery };
constexpr auto EnumNamesOf(NormOrder) {
  using enum NormOrder;
  return EnumNameTable<NormOrder>({{kPre, "pre"}, {kPost, "post"}, {kQuery, "query"}});
}

struct NormConfig {
  NormKind kind = NormKind::kRms;
  float eps = 1e-6f;
  bool weight = true;
  bool bias = false;  // kLayer only
  NormOrder order = NormOrder::kPre;
  bool embedding = false;
  bool final = true;
  bool depth_scale = false;
};

using kernels::Activation;

// What a request may send for a prompt.
enum class InputKind { kIds, kEmbeds, kBoth };
constexpr auto EnumNamesOf(InputKind) {
  using enum InputKind;
  return EnumNameTable<InputKind>({{kIds, "ids"}, {kEmbeds, "embeds"}, {kBoth, "both"}});
}

enum class InputAdapter { kNone, kDense, kPositionWise };
constexpr auto EnumNamesOf(InputAdapter) {
  using enum InputAdapter;
  return EnumNameTable<InputAdapter>(
      {{kNone, "none"}, {kDense, "dense"}, {kPositionWise, "position_wise"}});
}

struct ModelConfig {
  std::string architecture = "LlamaForCausalLM";  // of `architectures`, the one understood
  Family family = Family::kLlama;
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int64_t layers = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  int64_t max_positions = 0;  // longest sequence: the smaller of the model's and position_wise's

  NormConfig norm;
  PositionKind positions = PositionKind::kRope;
  RopeConfig rope;
  int64_t position_rows = 0;    // of the learned positions' table
  int64_t position_offset = 0;  // its row of position 0
  int64_t token_types = 0;      // rows of BERT's table; every token is of type 0; 0: no table

  bool causal = true;  // else every position sees all of the sequence
  bool qk_norm = false;
  float qk_norm_eps = 1.1920929e-07f;
  bool query_gain = false;

  Activation activation = Activation::kSilu;
  bool gated_mlp = true;
  bool qkv_bias = false;
  bool output_bias = false;  // of o
  bool mlp_bias = false;

  bool parallel_blocks = false;
  bool branch_scale = false;
  bool residual_mix = false;
  bool skip_weights = false;
  float embedding_scale = 1.0f;

  bool has_lm_head = true;
  bool tie_word_embeddings = false;
  bool head_bias = false;
  float logit_soft_cap = 0;  // 0: none

  InputKind input = InputKind::kIds;
  int64_t input_width = 0;  // of a float row; 0: ids only
  InputAdapter input_adapter = InputAdapter::kNone;
  bool input_adapter_bias = false;  // of a dense one

  int32_t bos_token_id = -1;  // -1: none
  std::vector<int32_t> eos_token_ids;
  bool byte_tokenizer = false;
  bool no_tokenizer = false;  // whatever files there are
  PositionWiseConfig position_wise;
  XsaConfig xsa;
  ServingConfig serving;

  // Rotated features of a head; 0: none.
  int64_t rotary_dim() const;
  // Layers whose output comes back, weighted, in the second half.
  int64_t skips() const { return skip_weights ? layers / 2 : 0; }
  bool embeds_ids() const { return input != InputKind::kEmbeds; }
};

// Validates every value against its range. Errors name the key and the limit.
absl::StatusOr<ModelConfig> ParseModelConfig(std::string_view text);

}  // namespace sluice
