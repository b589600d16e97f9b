// The layer graph: which op reads and writes what, composed from the config. Backends lower it to
// kernels; nothing here knows a device.
//
// Buffers hold one row of `width` values per token of the step batch. Ops run in order. A new kind
// of norm, position or MLP is a new op (or a new value of an op's enum) and a line in BuildGraph.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "engine/model/config.h"

namespace sluice {

using BufferId = int32_t;

struct GraphBuffer {
  std::string name;  // for errors and dumps
  int64_t width;
};

// out = table[token]
struct EmbedOp {
  std::string table;  // [vocab, hidden]
  BufferId out;
};

// out = rms_norm(in) * weight
struct RmsNormOp {
  BufferId in, out;
  std::string weight;  // [width]
  float eps;
};

// out (+)= in W + bias; position-wise: W and maybe the bias chosen by the row's position.
struct LinearOp {
  BufferId in, out;
  std::string weight;  // dense [out, in]; position-wise [positions, in, out]
  std::string bias;    // empty: none; [out], or [positions, out]
  bool position_wise;
  bool position_bias;
  int64_t positions;  // position-wise only
  bool accumulate;    // add to `out` (the residual)
};

// Rotates q, writes rotated k and v to the layer's KV pages.
struct RopeStoreOp {
  int32_t layer;
  BufferId q, k, v;
};

// out = attention(q, KV pages of the layer), with XSA where the layer has it.
struct AttentionOp {
  int32_t layer;
  BufferId q, out;
  bool causal;
  bool xsa;
  std::string xsa_gate;  // tensor of alpha [heads]; empty: none
};

// out = silu(gate) * up
struct SwiGluOp {
  BufferId gate, up, out;
};

// Logits of the sampled rows: in W (no bias), then scoring and sampling.
struct HeadOp {
  BufferId in;
  std::string weight;  // [vocab, hidden]; the embedding's name when tied
};

using GraphOp =
    std::variant<EmbedOp, RmsNormOp, LinearOp, RopeStoreOp, AttentionOp, SwiGluOp, HeadOp>;

struct Graph {
  std::vector<GraphBuffer> buffers;
  std::vector<GraphOp> ops;
};

Graph BuildGraph(const ModelConfig& config);

}  // namespace sluice
