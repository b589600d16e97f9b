// What each family calls its tensors. The one place that differs between checkpoints of different
// families: the layer graph is the same.
#pragma once

#include <functional>
#include <string>

#include "engine/model/config.h"

namespace sluice {

// Modules, whose tensors are `.weight` and `.bias`; an empty one: the family has no such tensor.
// Those of a layer follow the layer's prefix.
struct TensorNames {
  // In front of everything; checkpoints of a family may or may not have it.
  const char* prefix;
  const char* embedding;
  const char* positions;
  const char* token_types;
  const char* embedding_norm;
  const char* layer;                      // its index and a dot follow
  const char* projections[kProjections];  // q, k, v, o, gate, up, down
  bool fused_qkv;                         // q, k and v are one tensor's columns, in this order
  bool in_out;                            // dense weights are stored [in, out], else [out, in]
  const char* attention_norm;
  const char* mlp_norm;
  const char* final_norm;
  const char* head;  // without the prefix, as the rest
  const char* head_bias;

  // Of Llama's names only, which have a place for everything that a Sluice model may have:
  //   model.input_adapter.{weight, bias} or .{position_weight, position_bias}
  //   model.skip_weights [layers / 2, hidden]
  //   model.layers.N.residual_mix [2, hidden], .attention_scale [hidden], .mlp_scale [hidden]
  //   model.layers.N.self_attn.q_gain [heads], .xsa_alpha [heads]
  // A position-wise projection's weight is `.position_weight` [positions, in, out] and its bias
  // `.bias` [out] or `.position_bias` [positions, out].
};

const TensorNames& NamesOf(Family family);

// How one checkpoint deviates from the table.
struct TensorSpelling {
  bool without_prefix = false;
  bool gamma_beta = false;  // norms are `.gamma` and `.beta`, as in early BERT checkpoints
};

// What `has` (is there a tensor of this name?) tells of a checkpoint.
TensorSpelling FindSpelling(Family family, const std::function<bool(const std::string&)>& has);

}  // namespace sluice
