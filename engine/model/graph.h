// The layer graph: which op reads and writes what, composed from the config. Backends lower it to
// kernels; nothing here knows a device, and nothing below a family.
//
// Buffers hold one row of `width` values per token of the step batch. Ops run in order. A new kind
// of norm, position or MLP is a new op (or a new value of an op's enum) and a line in BuildGraph.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "engine/model/config.h"
#include "engine/model/tensor_names.h"

namespace sluice {

using BufferId = int32_t;
inline constexpr BufferId kNoBuffer = -1;

struct GraphBuffer {
  std::string name;  // for errors and dumps
  int64_t width;
};

// Where an op's values lie in the checkpoint: a tensor of `shape`, from element `first` on. How many
// are read follows from the op.
struct TensorPart {
  std::string name;  // empty: the op does without
  std::vector<int64_t> shape = {};
  int64_t first = 0;

  bool present() const { return !name.empty(); }
};

// What tells a row of the table.
enum class EmbedIndex {
  kToken,     // the row's token; rows of a negative one (a float row, see InputOp) are left alone
  kPosition,  // StepBatch::positions()
  kFirst,     // row 0, whatever the token
};

// out (+)= scale * table[index]
struct EmbedOp {
  TensorPart table;  // [rows, width of out]
  EmbedIndex index;
  BufferId out;
  bool accumulate;
  float scale;
};

// out = StepBatch::inputs(), which is 0 in the rows of tokens.
struct InputOp {
  int64_t width;
  BufferId out;
};

// Over each `width` values of a row in turn, x:
//   kRms:    out = x / sqrt(mean(x^2) + eps) * weight * scale
//   kLayer:  out = ((x - mean(x)) / sqrt(variance(x) + eps) * weight + bias) * scale
struct NormOp {
  BufferId in, out;  // may be the same
  NormKind kind;
  TensorPart weight;  // [width]; absent: ones
  TensorPart bias;    // [width]; absent: zeros
  float eps;
  int64_t width;  // divides that of the buffers
  float scale;
};

enum class MatrixLayout {
  kOutIn,          // [out, in], all of it
  kInOut,          // [in, out], or the columns of a wider one from `first` on
  kPositionInOut,  // [positions, in, out], position-wise: the matrix is chosen by the row's position
};

// out (+)= in W + bias
struct LinearOp {
  BufferId in, out;
  TensorPart weight;
  MatrixLayout layout;
  TensorPart bias;     // [out], or [positions, out]
  bool position_bias;  // the latter
  bool accumulate;     // add to `out` (the residual)

  bool position_wise() const { return layout == MatrixLayout::kPositionInOut; }
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

// out = activation(in) * up
struct ActivationOp {
  Activation activation;
  BufferId in, up, out;  // up: kNoBuffer for none; out may be in
};

// out = a * a_weight + b * b_weight, feature by feature
struct MixOp {
  BufferId a, b, out;   // b: kNoBuffer for none; out may be a or b
  TensorPart a_weight;  // [width / repeat], each for `repeat` features in turn; absent: ones
  TensorPart b_weight;
  int64_t repeat = 1;
};

// Logits of the sampled rows: in W + bias, then c tanh(logits / c); then scoring and sampling.
struct HeadOp {
  BufferId in;
  TensorPart weight;  // [vocab, hidden]; the embedding's name when tied
  TensorPart bias;    // [vocab]
  float soft_cap;     // 0: none
};

using GraphOp = std::variant<EmbedOp, InputOp, NormOp, LinearOp, RopeStoreOp, AttentionOp,
                             ActivationOp, MixOp, HeadOp>;

// The residual stream after the first `ops` ops.
struct GraphState {
  size_t ops;
  BufferId buffer;
};

struct Graph {
  std::vector<GraphBuffer> buffers;
  std::vector<GraphOp> ops;
  std::vector<GraphState> states;  // behind the embedding, then behind each layer
  BufferId output = kNoBuffer;     // what the model makes of a token: after the last norm
};

Graph BuildGraph(const ModelConfig& config, const TensorSpelling& spelling = {});

}  // namespace sluice
