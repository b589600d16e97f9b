// The architecture of a model, read from a config.json in the style of Hugging Face.
//
// `architectures` names the family (engine/model/families/). Most families have the keys and tensor
// names of Hugging Face; SluiceForCausalLM and SluiceModel are explicit: they have Llama's keys for
// sizes, and the rest in the object "sluice".
//
// Every family reads these keys of the object "sluice":
//   "tokenizer": "byte" | "none"            byte: ids 0..255 are bytes, bos and eos are the
//                                           config's; none: no texts; absent: the tokenizer's files
//   "input": {                              float rows instead of token ids
//     "kind": "ids" | "embeds" | "both",    the prompts that a request may send
//     "width": n,                           values of a row; default hidden_size
//     "adapter": "none" | "dense" | "position_wise",   maps a row to hidden_size; none: unchanged
//     "bias": false }                       of a dense adapter
// Families with ModelFamily::takes_extensions (Llama, Mistral, Qwen, RankMixer, SmolLM3, Sluice)
// accept an input adapter, and also read:
//   "position_wise": {
//     "projections": {"q": [layers], "k": [..], "v": [..], "o": [..],
//                     "gate": [..], "up": [..], "down": [..]},
//     "max_positions": L,                   bounds sequences; tensors are [L, in, out]
//     "bias": "none" | "e" | "le" }         none, [out], or [L, out]
//   "xsa": {
//     "layers": [..], "form": "norm" | "squared", "eps": 1e-6, "gate": "none" | "tanh" }
// Only the Sluice architectures read these (the default of each key comes first):
//   "norm": {
//     "kind": "rms" | "layer", "eps": 1e-6,
//     "weight": true, "bias": false,        bias: layer norm only
//     "unit_offset": false,                 multiplies by 1 + weight
//     "order": "pre" | "post" | "query" | "around" | "after",   see NormOrder
//     "embedding": false, "final": true,    norms after the embedding and after the last layer
//     "first": true,                        the norm before the first layer's attention
//     "depth_scale": false }                layer n's norms times 1/sqrt(n + 1)
//   "positions": {
//     "kind": "rope" | "learned" | "none",
//     "dims": head_dim, "reversed": false,  rope: rotated features of a head; by -angle
//     "neighbours": false,                  rope: in pairs of neighbours, see RopeConfig
//     "local_theta": rope_theta,            rope: the base in layers with a window, unscaled
//     "unrotated": [..],                    rope: layers without positions
//     "offset": 0 }                         learned: row of position 0
//   "mixer": "attention" | "exchange",     the part of a layer before its MLP; see MixerKind
//   "attention": {
//     "causal": true,
//     "window": 0, "windowed": [..],        layers in which a position sees only keys that are
//                                           fewer than `window` positions away
//     "scale": 1/sqrt(head_dim),            of scores
//     "soft_cap": 0,                        c tanh(score / c); 0 for none
//     "alibi": false,                       subtracts the distance times a slope of the head
//     "relative_bias": {"buckets": n, "max_distance": m},   added to scores, as in T5
//     "disentangled": {                     see DisentangledConfig
//       "span": n, "max_distance": 0,
//       "terms": "both" | "query" | "key",
//       "shared": true, "norm": false },
//     "qk_norm": false,                     q and k heads over their root mean square, before rope
//     "qk_norm_eps": 1.1920929e-07,
//     "qk_norm_weight": "none" | "head" | "all" | "rotated",   see QkNormWeight
//     "query_gain": false,                  each query head times a learned number
//     "weights": "softmax" | "silu",        of values; silu: silu(score) / divisor, as in HSTU
//     "divisor": max_position_embeddings,
//     "qkv_silu": false,                    silu of q, k and v
//     "gate": false }                       silu(x U) times a norm of the output, as in HSTU
//   "mlp": {
//     "activation": "silu" | "gelu" | "gelu_tanh" | "relu" | "squared_relu",
//     "gated": true,                        act(x G) * (x U), else act(x U)
//     "present": true }                     false: layers without an MLP
//   "experts": {                            in place of the MLP; see ExpertsConfig
//     "count": n, "chosen": k,
//     "width": intermediate_size,           of each expert
//     "weights": "all" | "chosen",          the logits of the softmax; chosen: they add up to 1
//     "bias": false, "layers": all }        bias: of the weighted sum
//   "biases": {"qkv": false, "o": false, "mlp": false, "down": mlp, "head": false}
//   "block": "sequential" | "parallel" | "parallel_norms"   parallel: x + attention(n(x)) +
//                                           mlp(n(x)) with one norm, or with one for each
//   "branch_scale": false                   outputs of attention and MLP times vectors
//   "residual_mix": false                   x = m0 * x + m1 * x0 before each layer, x0: embedded
//   "skip_weights": false                   U-Net: x += w[i] * output of layer (first half - 1 - i)
//   "embedding_scale": 1.0                  of token embeddings
//   "embedding_width": hidden_size          another width: a dense layer maps it to hidden_size
//   "layer_groups": number of layers        fewer: the layers of a group share their weights
//   "token_types": 0                        rows of a table of segments, added to embeddings
//   "logit_scale": 1                        multiplies logits
//   "logit_soft_cap": 0                     c tanh(logits / c); 0 for none
// The same object describes prompts and outputs (engine/model/serving_config.h), the precision of
// projections (engine/model/quantization.h) and the type of keys and values
// (engine/model/kv_type.h).
// Unknown keys inside "sluice" are errors, and so are keys of a family that would change the result
// in a way that Sluice does not support. Other keys that neither Sluice nor the family's class in
// transformers knows are ignored, as other readers of such files do, with a warning.
// Tensor names are in engine/model/tensor_names.h.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/enum_names.h"
#include "engine/model/kv_type.h"
#include "engine/model/quantization.h"
#include "engine/model/serving_config.h"
#include "kernels/activation_kind.h"
#include "kernels/route_softmax.h"

// Declared next to their user, because CUDA's compiler reads activation_kind.h.
namespace sluice::kernels {
constexpr auto EnumNamesOf(RouteSoftmax) {
  using enum RouteSoftmax;
  return EnumNameTable<RouteSoftmax>({{kOfAll, "all"}, {kOfChosen, "chosen"}});
}
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

struct ModelFamily;
extern const ModelFamily kLlamaFamily;

enum class Projection { kQ, kK, kV, kO, kGate, kUp, kDown };
inline constexpr int kProjections = CountEnumerators<Projection>();

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

// The mixing of a sequence's rows in a layer: attention, or an exchange of blocks between rows
// (RankMixer, arXiv 2507.15551). With the exchange, a sequence has as many rows as heads.
enum class MixerKind { kAttention, kExchange };
constexpr auto EnumNamesOf(MixerKind) {
  using enum MixerKind;
  return EnumNameTable<MixerKind>({{kAttention, "attention"}, {kExchange, "exchange"}});
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
  // Rotates the features 2i and 2i + 1 of a head as a pair, instead of i and i + dims/2. All
  // features of a head are then rotated.
  bool neighbours = false;
  // Each frequency is divided by its own divisor; empty for none. The scalings "linear" and
  // "longrope" set these.
  std::vector<double> divisors = {};
  double attention_factor = 1;  // multiplies cosines and sines
  // YaRN (arXiv 2309.00071): frequencies of more than beta_fast turns over the original positions
  // are kept, frequencies of fewer than beta_slow turns are divided by the factor.
  struct Yarn {
    double factor;
    double beta_fast;
    double beta_slow;
    int64_t original_max_positions;
    bool truncate;  // whether the range between is widened to whole features
  };
  std::optional<Yarn> yarn = {};
  // The frequency scaling of Llama 3.1, if any.
  struct Llama3 {
    double factor;
    double low_freq_factor;
    double high_freq_factor;
    int64_t original_max_positions;
  };
  std::optional<Llama3> llama3 = {};
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
//   kAround: x += m(f(n(x))), with another norm m, as Gemma 2
//   kAfter:  x += m(f(x)), as OLMo 2
enum class NormOrder { kPre, kPost, kQuery, kAround, kAfter };
constexpr auto EnumNamesOf(NormOrder) {
  using enum NormOrder;
  return EnumNameTable<NormOrder>(
      {{kPre, "pre"}, {kPost, "post"}, {kQuery, "query"}, {kAround, "around"}, {kAfter, "after"}});
}

struct NormConfig {
  NormKind kind = NormKind::kRms;
  float eps = 1e-6f;
  bool weight = true;
  bool bias = false;         // kLayer only
  bool unit_offset = false;  // multiplies by 1 + weight, in the norms of q and k too
  NormOrder order = NormOrder::kPre;
  bool embedding = false;
  bool final = true;
  bool first = true;  // the norm before the first layer's attention
  bool depth_scale = false;
};

// The weights of the norms of q and k:
//   kNone:    none
//   kHead:    [head_dim] for all heads
//   kAll:     one for each feature of all heads, whose mean square is taken over all heads too
//   kRotated: [head_dim] for all heads, which multiply the rotated features, as in Hunyuan
enum class QkNormWeight { kNone, kHead, kAll, kRotated };
constexpr auto EnumNamesOf(QkNormWeight) {
  using enum QkNormWeight;
  return EnumNameTable<QkNormWeight>(
      {{kNone, "none"}, {kHead, "head"}, {kAll, "all"}, {kRotated, "rotated"}});
}

// A number that is added to scores: from a table, for each query head and bucket of distances (T5,
// arXiv 1910.10683), or a multiple of the distance (ALiBi, arXiv 2108.12409).
struct RelativeBiasConfig {
  int64_t buckets = 0;  // 0 for no table
  int64_t max_distance = 128;
  bool alibi = false;  // instead of the table; see AlibiByDistance
};

// The products that disentangled attention adds to scores: of a query with a table of keys of
// relative positions, and of a key with a table of queries. See kernels/cpu/relative_positions.h.
enum class RelativeTermKind { kBoth, kQuery, kKey };
constexpr auto EnumNamesOf(RelativeTermKind) {
  using enum RelativeTermKind;
  return EnumNameTable<RelativeTermKind>({{kBoth, "both"}, {kQuery, "query"}, {kKey, "key"}});
}

// Disentangled attention (DeBERTa, arXiv 2006.03654). A tensor [2 span, hidden] that all layers
// share has the relative positions. Each layer projects them to its tables.
struct DisentangledConfig {
  int64_t span = 0;          // 0 for none
  int64_t max_distance = 0;  // above 0: long distances share rows, see RelativeRow
  RelativeTermKind terms = RelativeTermKind::kBoth;
  bool shared = true;  // whether the projections are the layer's q and k
  bool norm = false;   // a norm of the tensor's rows
};

using kernels::Activation;

// Layers whose MLP is a mixture of experts: `count` MLPs, of which each row uses `chosen`.
struct ExpertsConfig {
  int64_t count = 0;  // 0 for no experts
  int64_t chosen = 0;
  int64_t width = 0;  // the intermediate size of each expert
  kernels::RouteSoftmax softmax = kernels::RouteSoftmax::kOfAll;
  bool bias = false;         // of the weighted sum
  std::vector<bool> layers;  // [layers] with experts

  // Returns whether a layer has experts.
  bool in(int64_t layer) const { return count > 0 && layers[layer]; }
};

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

// The adapters that the checkpoint itself has for tasks, as jina-embeddings-v3 does. Each changed
// module has the tensors MODULE.parametrizations.weight.original, .0.lora_A and .0.lora_B; the last
// two have the matrices of all tasks, one after another.
struct TaskAdaptersConfig {
  std::vector<std::string> names;  // of the tasks, in the order of the matrices; empty: none
  int64_t rank = 0;                // 0 if the weights are not stored like this
  double scale = 0;
};

struct ModelConfig {
  std::string architecture = "LlamaForCausalLM";  // the known one of `architectures`
  const ModelFamily* family = &kLlamaFamily;
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
  std::optional<RopeConfig> local_rope;  // in layers with a window, if they have their own
  std::vector<bool> unrotated;           // [layers] without rope; empty for none
  int64_t position_rows = 0;             // rows of the table of learned positions
  int64_t position_offset = 0;           // the row of position 0 in that table
  // If not negative, learned positions count only tokens other than this one, from 1 on, and this
  // token has position 0, as in RoBERTa.
  int32_t padding_token = -1;
  int64_t token_types = 0;  // rows of the table of BERT's segments, or 0

  MixerKind mixer = MixerKind::kAttention;
  bool causal = true;  // if false, every position attends to the whole sequence
  // In layers with a window a position sees the keys that are fewer than `window` positions away.
  int64_t window = 0;
  // [layers] with a window, or with local_rope only if `window` is 0; empty for none.
  std::vector<bool> windowed;
  float score_scale = 0;     // 0 for 1 / sqrt(head_dim)
  float score_soft_cap = 0;  // 0 for none
  RelativeBiasConfig relative_bias;
  DisentangledConfig disentangled;
  bool qk_norm = false;
  QkNormWeight qk_norm_weight = QkNormWeight::kNone;
  float qk_norm_eps = 1.1920929e-07f;
  bool query_gain = false;
  double attention_divisor = 0;  // of the SiLU of scores; 0 for the softmax
  bool qkv_silu = false;
  bool attention_gate = false;

  Activation activation = Activation::kSilu;
  bool has_mlp = true;
  bool gated_mlp = true;
  ExpertsConfig experts;
  bool qkv_bias = false;
  bool output_bias = false;  // of projection o
  bool mlp_bias = false;
  bool down_bias = false;  // of projection down, even without mlp_bias

  bool parallel_blocks = false;
  bool parallel_norms = false;  // separate for attention and MLP; with parallel_blocks
  bool branch_scale = false;
  bool residual_mix = false;
  bool skip_weights = false;
  float embedding_scale = 1.0f;
  // The width of embeddings, if a dense layer maps them to the hidden size; else 0.
  int64_t embedding_width = 0;
  // If not 0, the layers are this many groups of neighbours with the same weights.
  int64_t layer_groups = 0;

  bool has_lm_head = true;
  bool tie_word_embeddings = false;
  bool head_bias = false;
  // A dense layer, an activation and a norm before the head, as in masked language models.
  bool head_transform = false;
  bool head_transform_bias = true;
  Activation head_activation = Activation::kGelu;
  float logit_scale = 1;     // multiplies logits
  float logit_soft_cap = 0;  // 0 for none

  InputKind input = InputKind::kIds;
  int64_t input_width = 0;  // values of a float row; 0 if only ids
  InputAdapter input_adapter = InputAdapter::kNone;
  bool input_adapter_bias = false;  // of a dense adapter

  // A part of the tensors' names that is left out when they are read, as of the language model in a
  // model that also reads images; empty for none.
  std::string weights_part;
  // The description of the weights in config.json, for plans without a checkpoint. In a checkpoint,
  // each tensor has its own dtype.
  bool stored_in_bf16 = false;

  int32_t bos_token_id = -1;  // -1 for none
  std::vector<int32_t> eos_token_ids;
  bool byte_tokenizer = false;
  bool no_tokenizer = false;  // even if there are files of one
  PositionWiseConfig position_wise;
  XsaConfig xsa;
  TaskAdaptersConfig task_adapters;
  ServingConfig serving;
  QuantizationConfig quantization;
  StoredQuantization stored_quantization;
  KvType kv_dtype = KvType::kF32;

  // The parts of the files that are ignored, as sentences for a log.
  std::vector<std::string> warnings;

  // Returns the length that every sequence must have, or 0.
  int64_t only_length() const { return mixer == MixerKind::kExchange ? max_positions : 0; }
  // Returns the number of layers that keep keys and values.
  int64_t kv_layers() const { return mixer == MixerKind::kExchange ? 0 : layers; }
  // Returns the number of rotated features of a head, or 0.
  int64_t rotary_dim() const;
  // Returns the window of a layer, or 0.
  int64_t window_of(int64_t layer) const {
    return window > 0 && !windowed.empty() && windowed[layer] ? window : 0;
  }
  // Returns the number of layers with a window.
  int64_t windowed_layers() const {
    return window > 0 ? std::count(windowed.begin(), windowed.end(), true) : 0;
  }
  // Returns the number of layers whose output returns, weighted, in the second half.
  int64_t skips() const { return skip_weights ? layers / 2 : 0; }
  bool embeds_ids() const { return input != InputKind::kEmbeds; }
  // Returns the number of values of an embedding.
  int64_t embedding_size() const {
    return serving.dense.empty() ? hidden_size * std::ssize(serving.pooling.all)
                                 : serving.dense.back().out;
  }
  // Returns the number of values of the embedding of one token.
  int64_t token_embedding_size() const {
    return serving.multi_vector ? vector_size() : hidden_size;
  }
  // Returns the number of values of each vector of a row; 0 if rows have none.
  int64_t vector_size() const {
    if (!serving.vectors) return 0;
    return serving.vectors->dense.empty() ? hidden_size : serving.vectors->dense.back().out;
  }
};

// Reads the text of a config.json and checks every value against its range. Errors name the key and
// the limit. If no architecture of the file is supported, the error names the most similar one.
absl::StatusOr<ModelConfig> ParseModelConfig(std::string_view text);

}  // namespace sluice
