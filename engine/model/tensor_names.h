// The names of the tensors in each family. This is the only place that differs between checkpoints
// of different families: the layer graph is the same.
#pragma once

#include <functional>
#include <string>

#include "engine/model/config.h"

namespace sluice {

// The names of modules, whose tensors are `.weight` and `.bias`. A name is empty if the family has
// no such tensor. The names of a layer follow its prefix.
struct TensorNames {
  // The prefix of all names; checkpoints of a family may or may not have it.
  const char* prefix;
  const char* embedding;
  const char* positions;
  const char* token_types;
  const char* embedding_norm;
  const char* layer;                      // the index of the layer and a dot follow
  const char* projections[kProjections];  // q, k, v, o, gate, up, down
  bool fused_qkv;                         // q, k and v are columns of one tensor, in this order
  bool in_out;  // whether dense weights are [in, out]; else they are [out, in]
  const char* attention_norm;
  const char* mlp_norm;
  const char* final_norm;
  const char* head;  // without the prefix, like head_bias
  const char* head_bias;

  // Llama's names alone have a place for everything that a Sluice model may have:
  //   model.input_adapter.{weight, bias} or .{position_weight, position_bias}
  //   model.embed_token_types.weight [token_types, hidden]
  //   model.skip_weights [layers / 2, hidden]
  //   model.layers.N.residual_mix [2, hidden], .attention_scale [hidden], .mlp_scale [hidden]
  //   model.layers.N.self_attn.q_gain [heads], .xsa_alpha [heads]
  // The weight of a position-wise projection is `.position_weight` [positions, in, out] and its
  // bias `.bias` [out] or `.position_bias` [positions, out].
};

const TensorNames& NamesOf(Family family);

// The deviations of one checkpoint from the table.
struct TensorSpelling {
  bool without_prefix = false;
  bool gamma_beta = false;  // norms have `.gamma` and `.beta`, as in early BERT checkpoints
};

// Returns the deviations of a checkpoint; `has` returns whether it has a tensor of a name.
TensorSpelling FindSpelling(Family family, const std::function<bool(const std::string&)>& has);

}  // namespace sluice
