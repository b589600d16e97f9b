// The names of the tensors in each family. This is the only place that differs between checkpoints
// of different families: the layer graph is the same.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "engine/model/config.h"

namespace sluice {

// The layout of q, k and v in one tensor.
enum class FusedQkv {
  kNone,
  kInTurn,  // all of q, then all of k, then all of v
  kByHead,  // for each head its q, k and v
  // All of the gate, then of v, q and k, as columns of a tensor [in, out] without `.weight`.
  kGateFirst,
};

// The layout of the gate and up matrices in one tensor, which has the gate's name.
enum class FusedGateUp { kNone, kGateFirst, kUpFirst };

// The tensors of the matrices of experts.
enum class ExpertTensors {
  kEach,     // [out, in], one for each expert
  kStacked,  // [experts, out, in]; gate and up are one tensor, the gate first
  kFlat,     // [experts * width, hidden]; without a gate, and down is [in, out] of each expert
};

// The names of a layer's experts, after its prefix.
struct ExpertNames {
  const char* router = "";  // a module
  ExpertTensors tensors = ExpertTensors::kEach;
  const char* each = "";  // of kEach: the index of the expert and a dot follow, then the module
  const char* gate = "";  // modules, or tensors of kFlat
  const char* up = "";
  const char* down = "";
  const char* bias = "";  // the tensor of the bias of the weighted sum
};

// The names of modules, whose tensors are `.weight` and `.bias`. A name is empty if the family has
// no such tensor. The names of a layer follow its prefix.
struct TensorNames {
  // The prefix of all names; checkpoints of a family may or may not have it.
  const char* prefix = "";
  const char* embedding = "";
  const char* embedding_copy = "";  // another name of the embedding, in checkpoints without it
  const char* positions = "";
  const char* token_types = "";
  const char* embedding_norm = "";
  const char* embedding_projection = "";       // from the embedding's width to the hidden size
  const char* layer = "";                      // the index of the layer and a dot follow
  const char* in_layer = "";                   // follows that dot, before the names of modules
  const char* projections[kProjections] = {};  // q, k, v, o, gate, up, down
  const char* ungated_up = "";                 // the name of up in an MLP without gate, if another
  FusedQkv fused_qkv = FusedQkv::kNone;
  FusedGateUp fused_gate_up = FusedGateUp::kNone;
  ExpertNames experts = {};
  bool in_out = false;  // whether dense weights are [in, out]; else they are [out, in]
  const char* attention_norm = "";
  const char* post_attention_norm = "";  // of the orders kAround and kAfter
  const char* mlp_norm = "";
  const char* post_mlp_norm = "";
  const char* attention_gate = "";
  const char* attention_gate_norm = "";  // before the gate
  const char* q_norm = "";
  const char* k_norm = "";
  const char* final_norm = "";
  const char* relative_bias = "";  // [buckets, heads], one for all layers
  // Disentangled attention: the relative positions, [2 span, hidden], and their norm, one for all
  // layers; in each layer their projections to queries and keys, if these are not q and k.
  const char* relative_table = "";
  const char* relative_norm = "";
  const char* relative_q = "";
  const char* relative_k = "";
  // These have no prefix.
  const char* head_dense = "";  // of the transform before the head
  const char* head_norm = "";
  const char* head = "";  // with `.weight`, like head_bias with `.bias`
  const char* head_bias = "";

  // Only Llama's names include all tensors that a Sluice model may have:
  //   model.input_adapter.{weight, bias} or .{position_weight, position_bias}
  //   model.embed_token_types.weight [token_types, hidden]
  //   model.skip_weights [layers / 2, hidden]
  //   model.layers.N.mlp.experts.bias [hidden]
  //   model.layers.N.residual_mix [2, hidden], .attention_scale [hidden], .mlp_scale [hidden]
  //   model.layers.N.self_attn.q_gain [heads], .xsa_alpha [heads]
  // The weight of a position-wise projection is `.position_weight` [positions, in, out] and its
  // bias `.bias` [out] or `.position_bias` [positions, out].
};

// The deviations of one checkpoint from the table.
struct TensorSpelling {
  bool without_prefix = false;
  bool gamma_beta = false;  // norms have `.gamma` and `.beta`, as in early BERT checkpoints
};

// Returns the deviations of a checkpoint; `has` returns whether it has a tensor of a name.
TensorSpelling FindSpelling(const ModelFamily& family,
                            const std::function<bool(const std::string&)>& has);

// Follows the name of a module whose weight has adapters for tasks; see TaskAdaptersConfig.
inline constexpr char kTaskWeight[] = ".parametrizations.weight";

// A tensor and another tensor with the same values, which a checkpoint may have in its place.
struct SharedTensor {
  std::string name, other;
};

// Returns the tensors of the config that transformers shares between two modules. A file has each
// of them under one of the names, or under both.
std::vector<SharedTensor> SharedTensors(const ModelConfig& config);

}  // namespace sluice
