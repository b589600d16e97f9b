// The layer graph: the ops with the buffers that they read and write, composed from the config.
// Backends lower it to kernels. It does not depend on devices, and the backends do not depend on
// families.
//
// Buffers hold one row of `width` values per token of the step batch, or one for each expert of the
// token. Ops run in order. A new kind of norm, position or MLP is a new op (or a new value of an
// op's enum) and a line in BuildGraph.
#pragma once

#include <cstdint>
#include <optional>
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
  // The rows of each token: 1, or the number of experts that compute it. The rows of experts are
  // ordered by expert, then by token.
  int64_t rows = 1;
  // If not kNoBuffer, the buffer is columns of that buffer, from `first` on. BuildGraph makes none.
  BufferId within = kNoBuffer;
  int64_t first = 0;
};

// Returns the place of the i-th run of a tensor, see TensorPart::evens_first.
inline int64_t RunAt(int64_t i, int64_t evens_first) {
  if (evens_first == 0) return i;
  const int64_t half = evens_first / 2, at = i % evens_first;
  return i - at + (at < half ? 2 * at : 2 * (at - half) + 1);
}

// The place of an op's values in the checkpoint: a tensor of `shape`, from element `first` on. The
// op determines the number of values.
struct TensorPart {
  std::string name;  // empty if the op has no such values
  std::vector<int64_t> shape = {};
  int64_t first = 0;
  // If not 0, the values are runs of `run` elements, `stride` apart. Runs of weights are whole
  // rows. With a stride of 0, the values are the same run again and again.
  int64_t run = 0;
  int64_t stride = 0;
  // If not 0, the runs are in groups of this number. In each group, the runs of even index come
  // first.
  int64_t evens_first = 0;

  // Returns the first element of run i.
  int64_t FirstOfRun(int64_t i) const { return first + RunAt(i, evens_first) * stride; }
  bool present() const { return !name.empty(); }
};

// The value that selects a row of the table.
enum class EmbedIndex {
  kToken,  // the row's token; rows with a negative one (float rows, see InputOp) keep their values
  kPosition,  // StepBatch::positions()
  kType,      // StepBatch::types()
};

// out (+)= scale * table[index]
struct EmbedOp {
  TensorPart table;  // [rows, width of out]
  EmbedIndex index;
  BufferId out;
  bool accumulate;
  float scale;

  // Adapters may change tables of tokens and types: the rows of `table` get scale * A B.
  bool adaptable() const { return index != EmbedIndex::kPosition && scale == 1; }
};

// out = StepBatch::inputs(), which is 0 in rows that are tokens.
struct InputOp {
  int64_t width;
  BufferId out;
};

// For each `width` values of a row in turn, x:
//   kRms:    out = x / sqrt(mean(x^2) + eps) * (weight_offset + weight) * scale
//   kLayer:  out = ((x - mean(x)) / sqrt(variance(x) + eps) * (weight_offset + weight) + bias)
//                  * scale
struct NormOp {
  BufferId in, out;  // may be the same
  NormKind kind;
  TensorPart weight;  // [width]; ones if absent
  TensorPart bias;    // [width]; zeros if absent
  float eps;
  int64_t width;  // divides the width of the buffers
  float scale;
  float weight_offset = 0;  // 0 without a weight
};

// The layout of each matrix of a layer.
enum class MatrixLayout {
  kOutIn,  // [out, in], or rows of a longer tensor
  kInOut,  // [in, out], or the columns of a wider tensor from `first` on
};

// The source of the index of the matrix that multiplies a row.
enum class MatrixIndex {
  kNone,      // the layer has one matrix
  kPosition,  // StepBatch::positions(): a position-wise layer
  kExpert,    // the expert of the row, which the RouteOp before the layer chose
};

// out (+)= in W[index] + bias
//
// If the graph takes adapters, an adapter may change a layer with one matrix that does not route:
// out += scale * B (A in) for the rows of the adapter, see adapter.h.
struct LinearOp {
  BufferId in, out;
  // The matrix, or the `matrices` matrices of the tensor, one after another. The matrices are the
  // runs of the part if it has runs.
  TensorPart weight;
  MatrixLayout layout;
  MatrixIndex index = MatrixIndex::kNone;
  int64_t matrices = 1;
  // The tensors of the matrices after the first one, if each matrix has a tensor. They have the
  // shape of the first.
  std::vector<std::string> more_matrices = {};
  bool routes = false;  // chooses experts, so it is computed in f32
  TensorPart bias;      // [out], or [matrices, out]
  bool bias_each;       // whether `bias` is [matrices, out]
  bool accumulate;      // add to `out` (the residual)
  // The columns of `out` after the columns of `weight`, if several layers are joined; each has a
  // bias if `bias` is present. BuildGraph joins none.
  struct JoinedLayer {
    TensorPart weight;
    TensorPart bias;
    int64_t width;
  };
  std::vector<JoinedLayer> more = {};

  bool position_wise() const { return index == MatrixIndex::kPosition; }
  bool one_matrix() const { return index == MatrixIndex::kNone; }
  bool adaptable() const { return one_matrix() && !routes; }
};

// Chooses the experts of each row, and copies the row for each of them: the `chosen` experts with
// the largest logits, the lower one of equal logits. See kernels/cpu/route.h.
struct RouteOp {
  BufferId logits;  // [experts]
  BufferId in, out;
  int64_t chosen;  // the rows of a token in `out`
  kernels::RouteSoftmax softmax;
};

// out (+)= sum of weight * in over the experts of each row, in ascending order, + bias. The RouteOp
// before it determined the weights.
struct CombineOp {
  BufferId in, out;
  int64_t chosen;
  TensorPart bias;  // [out]
  bool accumulate;
};

// The rotary positions of a layer: the config's, the ones for layers with a window, or none.
enum class RopeUse { kMain, kLocal, kNone };

// Rotates q, and writes rotated k, and v, to the KV pages of the layer.
struct RopeStoreOp {
  int32_t layer;
  BufferId q, k, v;
  RopeUse rope = RopeUse::kMain;
};

// The tables of relative positions of disentangled attention. Each is a dense layer, whose buffers
// are kNoBuffer, of the rows of a tensor that all layers share.
struct RelativeTables {
  TensorPart positions;             // [2 span, hidden]
  std::optional<NormOp> norm;       // of the rows, before the dense layers
  std::optional<LinearOp> keys;     // multiplied by queries
  std::optional<LinearOp> queries;  // multiplied by keys
  int64_t span;
  int64_t max_distance;  // see RelativeRow
};

// out = attention(q, KV pages of the layer), with XSA if the layer has it. The score of a visible
// key is c tanh(scale q . k / c), for the soft cap c, plus the relative bias, plus the scale times
// the products with the tables of relative positions. The weights of values are the softmax of
// scores or, if silu_share is not 0, silu_share silu(score).
struct AttentionOp {
  int32_t layer;
  BufferId q, out;
  bool causal;
  float scale;
  int64_t window = 0;             // sees keys fewer than `window` positions away; 0 for all
  float soft_cap = 0;             // 0 for none
  bool alibi = false;             // the bias is by distance, see AlibiByDistance
  TensorPart relative_bias = {};  // [buckets, heads]
  int64_t relative_distance = 0;  // all distances from here on share a bucket
  std::optional<RelativeTables> relative = {};
  float silu_share = 0;
  bool xsa;
  std::string xsa_gate;  // name of the tensor alpha [heads]; empty for none

  bool biased() const { return alibi || relative_bias.present(); }
};

// In a sequence of `tokens` rows, each divided into `tokens` blocks of equal width, block h of row
// t of `out` is block t of row h of `in`.
struct ExchangeOp {
  BufferId in, out;  // not the same
  int64_t tokens;
};

// out = activation(in) * up
struct ActivationOp {
  Activation activation;
  BufferId in, up, out;  // `up` may be kNoBuffer; `out` may be `in`
};

// out = a * a_weight + b * b_weight, feature by feature
struct MixOp {
  BufferId a, b, out;   // `b` may be kNoBuffer; `out` may be `a` or `b`
  TensorPart a_weight;  // [width / repeat], each for `repeat` features in turn; ones if absent
  TensorPart b_weight;
  int64_t repeat = 1;
};

// The logits of the sampled rows, in W + bias, then c tanh(logits / c); then scoring and sampling.
struct HeadOp {
  BufferId in;
  TensorPart weight;  // [vocab, hidden]; the embedding if tied
  TensorPart bias;    // [vocab]
  float soft_cap;     // 0 for none
};

using GraphOp = std::variant<EmbedOp, InputOp, NormOp, LinearOp, RouteOp, CombineOp, RopeStoreOp,
                             AttentionOp, ExchangeOp, ActivationOp, MixOp, HeadOp>;

// Returns the buffer that an op changes; a head changes none.
BufferId WrittenBuffer(const GraphOp& op);

// The residual stream after the first `ops` ops.
struct GraphState {
  size_t ops;
  BufferId buffer;
};

struct Graph {
  std::vector<GraphBuffer> buffers;
  std::vector<GraphOp> ops;
  std::vector<GraphState> states;  // after the embedding, then after each layer
  bool takes_adapters = false;
  BufferId output = kNoBuffer;      // the model's output for a token, after the last norm
  BufferId trunk = kNoBuffer;       // the output without the transform of a masked language model
  BufferId head_input = kNoBuffer;  // the output, or a multiple of it
};

Graph BuildGraph(const ModelConfig& config, const TensorSpelling& spelling = {});

}  // namespace sluice
