// The architecture of a model, read from a config.json in the style of Hugging Face.
//
// `architectures` names the family:
//   LlamaForCausalLM, Qwen2ForCausalLM   keys and tensor names of Hugging Face
//   GPT2LMHeadModel, GPT2Model           the same
//   BertForMaskedLM, BertModel, BertForSequenceClassification,
//   BertForTokenClassification           the same
//   SluiceForCausalLM, SluiceModel       explicit: Llama's keys for sizes, the rest in "sluice"
//
// Every family reads these keys of the object "sluice":
//   "tokenizer": "byte" | "none"            byte: ids 0..255 are bytes, bos and eos are the
//                                           config's; none: no texts; absent: the tokenizer's files
//   "input": {                              float rows in place of token ids
//     "kind": "ids" | "embeds" | "both",    the prompts that a request may send
//     "width": n,                           values of a row; default hidden_size
//     "adapter": "none" | "dense" | "position_wise",   maps a row to hidden_size; none: unchanged
//     "bias": false }                       of a dense adapter
// The families with the tensor names of Llama (Llama, Qwen2, Sluice) also read:
//   "position_wise": {
//     "projections": {"q": [layers], "k": [..], "v": [..], "o": [..],
//                     "gate": [..], "up": [..], "down": [..]},
//     "max_positions": L,                   bounds sequences; tensors are [L, in, out]
//     "bias": "none" | "e" | "le" }         none, [out], or [L, out]
//   "xsa": {
//     "layers": [..], "form": "norm" | "squared", "eps": 1e-6, "gate": "none" | "tanh" }
// The Sluice architectures alone read these (the default of each key comes first):
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
//   "branch_scale": false                   outputs of attention and MLP times vectors
//   "residual_mix": false                   x = m0 * x + m1 * x0 before each layer, x0: embedded
//   "skip_weights": false                   U-Net: x += w[i] * output of layer (first half - 1 - i)
//   "embedding_scale": 1.0                  of token embeddings
//   "token_types": 0                        rows of a table of segments, added to embeddings
//   "logit_soft_cap": 0                     c tanh(logits / c); 0 for none
// The same object describes prompts and outputs (engine/model/serving_config.h), and in which
// precision projections are computed (engine/model/quantization.h).
// Unknown keys inside "sluice" are errors. Unknown keys of the families are ignored, as by every
// reader of such files, except that unsupported keys that would change the result are errors.
// Tensor names are in engine/model/tensor_names.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/enum_names.h"
#include "engine/model/quantization.h"
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
  std::vector<bool> layers[kProjections];  // [layers] each: whether it is position-wise
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
  int64_t dims = 0;       // rotated features at the front of a head; 0 for all
  bool reversed = false;  // rotates by -angle
  // The frequency scaling of Llama 3.1, if any.
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

// The places of a layer's norms n around its branches f (attention, then the MLP):
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

// The prompts that a request may send.
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
  std::string architecture = "LlamaForCausalLM";  // the one of `architectures` that is known
  Family family = Family::kLlama;
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int64_t layers = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  int64_t max_positions = 0;  // longest sequence: the lesser of the model's and position_wise's

  NormConfig norm;
  PositionKind positions = PositionKind::kRope;
  RopeConfig rope;
  int64_t position_rows = 0;    // rows of the table of learned positions
  int64_t position_offset = 0;  // the row of position 0 in that table
  int64_t token_types = 0;      // rows of the table of BERT's segments, or 0

  bool causal = true;  // if false, every position attends to the whole sequence
  bool qk_norm = false;
  float qk_norm_eps = 1.1920929e-07f;
  bool query_gain = false;

  Activation activation = Activation::kSilu;
  bool gated_mlp = true;
  bool qkv_bias = false;
  bool output_bias = false;  // of projection o
  bool mlp_bias = false;

  bool parallel_blocks = false;
  bool branch_scale = false;
  bool residual_mix = false;
  bool skip_weights = false;
  float embedding_scale = 1.0f;

  bool has_lm_head = true;
  bool tie_word_embeddings = false;
  bool head_bias = false;
  float logit_soft_cap = 0;  // 0 for none

  InputKind input = InputKind::kIds;
  int64_t input_width = 0;  // values of a float row; 0 for ids only
  InputAdapter input_adapter = InputAdapter::kNone;
  bool input_adapter_bias = false;  // of a dense adapter

  // What config.json says of the weights, for plans without a checkpoint. Of a checkpoint each
  // tensor has its own dtype.
  bool stored_in_bf16 = false;

  int32_t bos_token_id = -1;  // -1 for none
  std::vector<int32_t> eos_token_ids;
  bool byte_tokenizer = false;
  bool no_tokenizer = false;  // even if there are files of one
  PositionWiseConfig position_wise;
  XsaConfig xsa;
  ServingConfig serving;
  QuantizationConfig quantization;

  // Returns the number of rotated features of a head, or 0.
  int64_t rotary_dim() const;
  // Returns the number of layers whose output returns, weighted, in the second half.
  int64_t skips() const { return skip_weights ? layers / 2 : 0; }
  bool embeds_ids() const { return input != InputKind::kEmbeds; }
  // Returns the number of values of an embedding.
  int64_t embedding_size() const {
    return serving.dense.empty() ? hidden_size * std::ssize(serving.pooling.all)
                                 : serving.dense.back().out;
  }
};

// Reads the text of a config.json and checks every value against its range. Errors name the key and
// the limit.
absl::StatusOr<ModelConfig> ParseModelConfig(std::string_view text);

}  // namespace sluice
