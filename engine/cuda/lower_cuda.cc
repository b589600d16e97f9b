#include "engine/cuda/lower_cuda.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "engine/cuda/dense_shapes.h"
#include "engine/cuda/joined_graph.h"
#include "engine/model/relative_bias.h"
#include "engine/model/rope.h"
#include "kernels/cuda/activation.h"
#include "kernels/cuda/embedding.h"
#include "kernels/cuda/exchange.h"
#include "kernels/cuda/mix.h"
#include "kernels/cuda/norm.h"
#include "kernels/cuda/projection.h"
#include "kernels/cuda/rope.h"

namespace sluice {
namespace {

namespace cuda = kernels::cuda;
using cuda::Stream;

// Lowers ops; one overload for each kind.
template <typename T>
class Lowering {
 public:
  using CudaOpOr = absl::StatusOr<CudaOp<T>>;

  Lowering(const Model& model, const Graph& graph, DeviceWeights& weights, DenseLayers* dense,
           KernelChoice<T>* kernels)
      : config_(model.config),
        graph_(graph),
        source_(model.checkpoint),
        weights_(weights),
        dense_(dense),
        kernels_(kernels) {}

  // Lowers all ops but the head, in order.
  absl::Status Lower(std::vector<CudaOp<T>>* ops) {
    for (size_t i = 0; i < graph_.ops.size(); ++i) {
      next_ = i + 1 < graph_.ops.size() ? &graph_.ops[i + 1] : nullptr;
      next_is_done_ = false;
      SLUICE_ASSIGN_OR_RETURN(CudaOp<T> cuda_op, std::visit(*this, graph_.ops[i]));
      if (cuda_op != nullptr) ops->push_back(std::move(cuda_op));
      if (next_is_done_) ++i;
    }
    return absl::OkStatus();
  }

  CudaOpOr operator()(const EmbedOp& op) {
    SLUICE_ASSIGN_OR_RETURN(const T* const table,
                            weights_.Load<T>(source_, op.table, Elements(op.table)));
    return [op, table, dim = Width32(op.out)](const StepPlace<T>& place, Stream& stream) {
      cuda::Embed<T>(stream, {.table = table,
                              .ids = Ids(op.index, place),
                              .drawn = place.drawn,
                              .dim = dim,
                              .accumulate = op.accumulate,
                              .scale = op.scale,
                              .rows = place.rows(),
                              .out = place.buffer(op.out)});
    };
  }

  CudaOpOr operator()(const InputOp& op) {
    return CudaOp<T>([op](const StepPlace<T>& place, Stream& stream) {
      cuda::TakeInput<T>(stream, {.in = place.template at<const float>(place.layout.inputs),
                                  .dim = static_cast<int32_t>(op.width),
                                  .rows = place.rows(),
                                  .out = place.buffer(op.out)});
    });
  }

  CudaOpOr operator()(const NormOp& op) {
    SLUICE_ASSIGN_OR_RETURN(const T* const weight, weights_.Load<T>(source_, op.weight, op.width));
    SLUICE_ASSIGN_OR_RETURN(const T* const bias, weights_.Load<T>(source_, op.bias, op.width));
    const int32_t dim = op.width, groups = Width32(op.in) / dim;
    SLUICE_CHECK(RowStride(op.in) == RowStride(op.out));
    return [op, weight, bias, dim, groups, stride = RowStride(op.in)](const StepPlace<T>& place,
                                                                      Stream& stream) {
      const cuda::NormArgs<T> args = {.x = place.buffer(op.in),
                                      .weight = weight,
                                      .bias = bias,
                                      .weight_offset = op.weight_offset,
                                      .eps = op.eps,
                                      .scale = op.scale,
                                      .dim = dim,
                                      .groups = groups,
                                      .stride = stride,
                                      .rows = place.rows(),
                                      .out = place.buffer(op.out)};
      switch (op.kind) {
        case NormKind::kRms:
          return cuda::RmsNorm(stream, args);
        case NormKind::kLayer:
          return cuda::LayerNorm(stream, args);
      }
    };
  }

  CudaOpOr operator()(const LinearOp& op) {
    const int32_t k = Width32(op.in), n = Width32(op.out);
    SLUICE_CHECK(RowStride(op.in) == 0 && RowStride(op.out) == 0);
    SLUICE_ASSIGN_OR_RETURN(const T* const bias, LoadBias(op, n));
    SLUICE_ASSIGN_OR_RETURN(const T* const plain, LoadWeight(op, k, n));
    SLUICE_ASSIGN_OR_RETURN(const DenseLayer* const layer, LibraryLayer(op, plain, bias));
    if (layer != nullptr) {
      uses_library_ = true;
      return [op, weight = plain, bias, layer, shape = *ShapeOf(graph_, op, kHalf)](
                 const StepPlace<T>& place, DeviceStream& stream) {
        RunInSlices(*layer, shape,
                    {.x = place.buffer(op.in),
                     .weight = weight,
                     .bias = bias,
                     .rows = place.bucket.tokens,
                     .out = place.buffer(op.out),
                     .workspace = place.workspace()},
                    stream);
      };
    }
    const auto matrices =
        static_cast<int32_t>(op.position_wise() ? Elements(op.weight) / (int64_t{k} * n) : 1);
    workspace_bytes_ = std::max<size_t>(workspace_bytes_, cuda::SplitSumsBytes(k));
    const ActivationOp* const then = ActivationOf(next_, op.out);
    next_is_done_ = then != nullptr;
    const bool activate = then != nullptr;
    const Activation activation = activate ? then->activation : Activation();
    const BufferId gate = activate && then->in != op.out ? then->in : kNoBuffer;
    SLUICE_ASSIGN_OR_RETURN(const GroupedProductCandidate<T>* const kernel,
                            ProductKernel({.k = k,
                                           .n = n,
                                           .matrices = matrices,
                                           .bias = bias != nullptr,
                                           .position_bias = op.position_bias,
                                           .accumulate = op.accumulate,
                                           .activate = activate,
                                           .activation = activation,
                                           .gated = gate != kNoBuffer},
                                          plain, bias));
    const T* weight = plain;
    if (kernel->packed) {
      SLUICE_ASSIGN_OR_RETURN(weight, weights_.Pack(plain, matrices, k, n));
    }
    return [op, kernel, weight, bias, k, n, activate, activation, gate](const StepPlace<T>& place,
                                                                        Stream& stream) {
      kernel->run(stream, {.x = place.buffer(op.in),
                           .weight = weight,
                           .bias = bias,
                           .bias_stride = op.position_bias ? n : 0,
                           .k = k,
                           .n = n,
                           .tiles = op.position_wise() ? place.group_tiles() : place.dense_tiles(),
                           .accumulate = op.accumulate,
                           .out = place.buffer(op.out),
                           .activate = activate,
                           .activation = activation,
                           .gate = Buffer(gate, place),
                           .split = place.split_sums(k)});
    };
  }

  CudaOpOr operator()(const RopeStoreOp& op) {
    SLUICE_ASSIGN_OR_RETURN(const DeviceRope rope, RopeTablesOf(op));
    const int32_t heads = config_.heads;
    const int64_t stride = RowStride(op.q);
    return [op, rope, heads, stride](const StepPlace<T>& place, Stream& stream) {
      cuda::RopeAndStore<T>(stream,
                            {.cos = rope.cos,
                             .sin = rope.sin,
                             .rotary_dim = rope.dims,
                             .positions = place.template at<const int32_t>(place.layout.positions),
                             .kv_slots = place.template at<const int32_t>(place.layout.kv_slots),
                             .q_heads = heads,
                             .q = place.buffer(op.q),
                             .k = place.buffer(op.k),
                             .v = place.buffer(op.v),
                             .stride = stride,
                             .kv = place.kv[op.layer],
                             .rows = place.rows()});
    };
  }

  CudaOpOr operator()(const AttentionOp& op) {
    cuda::Xsa xsa = {.form = XsaFormOf(op), .eps = config_.xsa.eps};
    if (!op.xsa_gate.empty()) {
      SLUICE_ASSIGN_OR_RETURN(xsa.gate, LoadGate(op.xsa_gate));
    }
    SLUICE_ASSIGN_OR_RETURN(const float* const bias, LoadRelativeBias(op));
    const int32_t heads = config_.heads, positions = config_.max_positions;
    SLUICE_ASSIGN_OR_RETURN(const AttentionCandidate<T>* const kernel,
                            AttentionKernel({.q_heads = heads,
                                             .kv_heads = static_cast<int32_t>(config_.kv_heads),
                                             .head_dim = static_cast<int32_t>(config_.head_dim),
                                             .max_positions = positions,
                                             .causal = op.causal,
                                             .xsa = xsa.form,
                                             .eps = xsa.eps,
                                             .gated = xsa.gate != nullptr,
                                             .window = static_cast<int32_t>(op.window),
                                             .soft_cap = op.soft_cap,
                                             .scale = op.scale,
                                             .biased = bias != nullptr,
                                             .silu_share = op.silu_share},
                                            {.gate = xsa.gate, .bias = bias}));
    return [op, kernel, xsa, bias, positions, heads, stride = RowStride(op.q)](
               const StepPlace<T>& place, Stream& stream) {
      cuda::AttentionArgs<T> args = {
          .q = place.buffer(op.q),
          .sequences = place.template at<const cuda::AttentionSequence>(place.layout.sequences),
          .rows = place.template at<const int32_t>(place.layout.sequence_rows),
          .pages = place.template at<const int32_t>(place.layout.pages),
          .tiles = place.attention_tiles(),
          .kv = place.kv[op.layer],
          .q_heads = heads,
          .q_stride = stride,
          .scale = op.scale,
          .causal = op.causal,
          .window = static_cast<int32_t>(op.window),
          .soft_cap = op.soft_cap,
          .bias = bias,
          .bias_positions = positions,
          .silu_share = op.silu_share,
          .xsa = xsa,
          .scratch = place.template at<float>(place.layout.attention_scratch),
          .out = place.buffer(op.out)};
      if (op.xsa) {
        const int64_t layer = int64_t{op.layer} * place.bucket.tokens * heads;
        args.xsa.cos_sim = place.template at<float>(place.layout.cos_sim) + layer;
        args.xsa.proj_frac = place.template at<float>(place.layout.proj_frac) + layer;
        args.xsa.wanted = &place.counts().wants_diagnostics;
      }
      kernel->run(stream, args);
    };
  }

  CudaOpOr operator()(const ActivationOp& op) {
    const int64_t stride = RowStride(op.in);
    return [op, stride, dim = Width32(op.in)](const StepPlace<T>& place, Stream& stream) {
      cuda::Activate<T>(stream, {.activation = op.activation,
                                 .in = place.buffer(op.in),
                                 .up = Buffer(op.up, place),
                                 .dim = dim,
                                 .stride = stride,
                                 .rows = place.rows(),
                                 .out = place.buffer(op.out)});
    };
  }

  CudaOpOr operator()(const ExchangeOp& op) {
    const int32_t tokens = op.tokens, block = Width(op.in) / op.tokens;
    return CudaOp<T>([op, tokens, block](const StepPlace<T>& place, Stream& stream) {
      cuda::Exchange<T>(stream,
                        {.in = place.buffer(op.in),
                         .places = place.template at<const int32_t>(place.layout.sequence_rows),
                         .tokens = tokens,
                         .block = block,
                         .rows = place.rows(),
                         .out = place.buffer(op.out)});
    });
  }

  CudaOpOr operator()(const MixOp& op) {
    const int64_t count = Width(op.out) / op.repeat;
    SLUICE_ASSIGN_OR_RETURN(const T* const a_weight, weights_.Load<T>(source_, op.a_weight, count));
    SLUICE_ASSIGN_OR_RETURN(const T* const b_weight, weights_.Load<T>(source_, op.b_weight, count));
    SLUICE_CHECK(RowStride(op.a) == RowStride(op.out));
    return [op, a_weight, b_weight, dim = Width32(op.out), stride = RowStride(op.a)](
               const StepPlace<T>& place, Stream& stream) {
      cuda::Mix<T>(stream, {.a = place.buffer(op.a),
                            .a_weight = a_weight,
                            .b = Buffer(op.b, place),
                            .b_weight = b_weight,
                            .repeat = static_cast<int32_t>(op.repeat),
                            .dim = dim,
                            .stride = stride,
                            .rows = place.rows(),
                            .out = place.buffer(op.out)});
    };
  }

  // The head runs separately (engine/cuda/cuda_head.h).
  CudaOpOr operator()(const HeadOp& op) {
    const int32_t columns = PaddedVocab(config_.vocab_size);
    SLUICE_ASSIGN_OR_RETURN(const auto bias,
                            weights_.Load<T>(source_, op.bias, config_.vocab_size, columns));
    SLUICE_ASSIGN_OR_RETURN(const auto head,
                            weights_.LoadDense<T>(source_, op.weight, MatrixLayout::kOutIn,
                                                  Width(op.in), config_.vocab_size, columns));
    head_ = {head, bias, op.soft_cap};
    if (const auto shape = ShapeOf(graph_, op, config_.vocab_size, kHalf); shape && dense_) {
      SLUICE_ASSIGN_OR_RETURN(head_.layer, dense_->Find(*shape, head, nullptr));
    }
    if (head_.layer == nullptr) {
      SLUICE_ASSIGN_OR_RETURN(head_.weight, weights_.Pack(head, 1, Width32(op.in), columns));
    }
    return CudaOp<T>();
  }

  const HeadWeights<T>& head() const { return head_; }
  bool uses_library() const { return uses_library_; }
  size_t workspace_bytes() const { return workspace_bytes_; }

 private:
  static constexpr bool kHalf = sizeof(T) == sizeof(cuda::BFloat16);
  static_assert(CudaHead<T>::kWideRows <= kMostHeadRows);

  static const int32_t* Ids(EmbedIndex index, const StepPlace<T>& place) {
    switch (index) {
      case EmbedIndex::kToken:
        return place.template at<const int32_t>(place.layout.token_ids);
      case EmbedIndex::kPosition:
        return place.template at<const int32_t>(place.layout.positions);
      case EmbedIndex::kType:
        break;
    }
    return place.template at<const int32_t>(place.layout.types);
  }
  static const T* Buffer(BufferId id, const StepPlace<T>& place) {
    return id == kNoBuffer ? nullptr : place.buffer(id);
  }
  // Returns the number of elements from the part's first on.
  static int64_t Elements(const TensorPart& part) {
    return std::accumulate(part.shape.begin(), part.shape.end(), int64_t{1}, std::multiplies<>()) -
           part.first;
  }
  int64_t Width(BufferId id) const { return graph_.buffers[id].width; }
  int32_t Width32(BufferId id) const { return Width(id); }
  // Returns the elements from row to row, or 0 if the rows are contiguous.
  int64_t RowStride(BufferId id) const {
    const BufferId within = graph_.buffers[id].within;
    return within == kNoBuffer ? 0 : Width(within);
  }

  absl::StatusOr<const T*> LoadWeight(const LinearOp& op, int32_t k, int32_t n) {
    if (op.position_wise()) return weights_.Load<T>(source_, op.weight, Elements(op.weight));
    // Neighbouring columns of one tensor are loaded like one layer.
    if (op.more.empty() || op.layout == MatrixLayout::kInOut) {
      return weights_.LoadDense<T>(source_, op.weight, op.layout, k, n);
    }
    return weights_.LoadJoined<T>(source_, ColumnsOf(op, n, &LinearOp::weight), k);
  }
  absl::StatusOr<const T*> LoadBias(const LinearOp& op, int32_t n) {
    if (op.more.empty() || op.layout == MatrixLayout::kInOut) {
      return weights_.Load<T>(source_, op.bias, op.position_bias ? Elements(op.bias) : n);
    }
    return weights_.LoadJoinedBias<T>(source_, ColumnsOf(op, n, &LinearOp::bias));
  }
  // Returns the tensors of a joined layer of `n` columns: its weights or its biases.
  static std::vector<DeviceWeights::Columns> ColumnsOf(const LinearOp& op, int64_t n,
                                                       TensorPart LinearOp::*first) {
    const bool weights = first == &LinearOp::weight;
    std::vector<DeviceWeights::Columns> columns = {{&(op.*first), n}};
    for (const LinearOp::Part& part : op.more) {
      columns.push_back({weights ? &part.weight : &part.bias, part.width});
      columns.front().count -= part.width;
    }
    return columns;
  }

  kernels::XsaForm XsaFormOf(const AttentionOp& op) const {
    if (!op.xsa) return kernels::XsaForm::kOff;
    return config_.xsa.form == XsaConfig::Form::kNorm ? kernels::XsaForm::kNorm
                                                      : kernels::XsaForm::kSquared;
  }

  absl::StatusOr<const AttentionCandidate<T>*> AttentionKernel(const AttentionShape& shape,
                                                               const AttentionTensors& tensors) {
    if (kernels_ != nullptr) return kernels_->Attention(shape, tensors);
    SLUICE_RETURN_IF_ERROR(PortableAttention<T>().supports(weights_.device_info(), shape));
    return &PortableAttention<T>();
  }
  absl::StatusOr<const GroupedProductCandidate<T>*> ProductKernel(const GroupedProductShape& shape,
                                                                  const T* weight, const T* bias) {
    if (kernels_ != nullptr) return kernels_->Product(shape, weight, bias);
    return &PortableProduct<T>();
  }

  // Returns nullptr if our kernel computes the layer. The library's layer applies the activation
  // behind it if the library has the right one. It does so before rounding, so the bits differ from
  // those of our kernels.
  absl::StatusOr<const DenseLayer*> LibraryLayer(const LinearOp& op, const T* weight,
                                                 const T* bias) {
    const std::optional<DenseShape> shape = ShapeOf(graph_, op, kHalf);
    if (dense_ == nullptr || !shape) return nullptr;
    absl::StatusOr<const DenseLayer*> layer = nullptr;
    if (const auto whole = WithActivation(*shape, ActivationOf(next_, op.out))) {
      layer = dense_->Find(*whole, weight, bias);
      SLUICE_RETURN_IF_ERROR(layer.status());
      next_is_done_ = *layer != nullptr;
    }
    if (*layer == nullptr) layer = dense_->Find(*shape, weight, bias);
    if (layer.ok() && *layer != nullptr) {
      workspace_bytes_ = std::max(workspace_bytes_, (*layer)->workspace_bytes());
    }
    return layer;
  }

  absl::StatusOr<const float*> LoadGate(const std::string& name) {
    SLUICE_ASSIGN_OR_RETURN(const Tensor alpha, source_.Find(name, {config_.heads}));
    std::vector<float> gate;
    for (int64_t h = 0; h < config_.heads; ++h) {
      const double value = kernels::LoadAsFloat(alpha.data, alpha.dtype, h);
      gate.push_back(static_cast<float>(std::tanh(value)));
    }
    return weights_.Put(gate);
  }

  // Returns the bias by distance, which all layers share; nullptr if the op has none.
  absl::StatusOr<const float*> LoadRelativeBias(const AttentionOp& op) {
    if (!op.relative_bias.present() || bias_ != nullptr) return bias_;
    SLUICE_ASSIGN_OR_RETURN(const Tensor tensor,
                            source_.Find(op.relative_bias.name, op.relative_bias.shape));
    std::vector<float> table(tensor.elements());
    kernels::ConvertToFloat(tensor.data, tensor.dtype, 0, tensor.elements(), table.data());
    SLUICE_ASSIGN_OR_RETURN(bias_,
                            weights_.Put(BiasByDistance(table, config_.heads, op.relative_distance,
                                                        config_.max_positions)));
    return bias_;
  }

  // The cosines and sines of positions, which layers share.
  struct DeviceRope {
    const float* cos = nullptr;
    const float* sin = nullptr;
    int32_t dims = 0;
  };
  absl::StatusOr<DeviceRope> RopeTablesOf(const RopeStoreOp& op) {
    DeviceRope& tables = rope_[static_cast<size_t>(op.rope)];
    const RopeOf rope = FindRope(op, config_);
    if (tables.cos != nullptr || rope.dims == 0) return tables;
    const RopeTable values = MakeRopeTable(*rope.rope, rope.dims, config_.max_positions);
    tables.dims = rope.dims;
    SLUICE_ASSIGN_OR_RETURN(tables.cos, weights_.Put(values.cos));
    SLUICE_ASSIGN_OR_RETURN(tables.sin, weights_.Put(values.sin));
    return tables;
  }

  const ModelConfig& config_;
  const Graph& graph_;
  const Checkpoint& source_;
  DeviceWeights& weights_;
  DenseLayers* dense_;              // nullptr if there are none
  KernelChoice<T>* kernels_;        // nullptr if the portable ones serve without a trial
  std::array<DeviceRope, 3> rope_;  // by RopeUse
  const float* bias_ = nullptr;
  HeadWeights<T> head_;
  bool uses_library_ = false;
  size_t workspace_bytes_ = 0;     // the most that a layer takes
  const GraphOp* next_ = nullptr;  // behind the op that is lowered; nullptr if there is none
  bool next_is_done_ = false;      // whether the op before includes it
};

}  // namespace

template <typename T>
absl::StatusOr<LoweredCudaModel<T>> LowerToCuda(const Model& model, DeviceWeights& weights,
                                                DenseLayers* dense, KernelChoice<T>* kernels) {
  LoweredCudaModel<T> lowered;
  lowered.graph = JoinProjections(model.graph, /*gates=*/dense != nullptr);
  Lowering<T> lowering(model, lowered.graph, weights, dense, kernels);
  SLUICE_RETURN_IF_ERROR(lowering.Lower(&lowered.ops));
  SLUICE_RETURN_IF_ERROR(weights.Finish());
  lowered.head = lowering.head();
  lowered.uses_library = lowering.uses_library();
  lowered.workspace_bytes = lowering.workspace_bytes();
  lowered.processors = weights.device_info().processors;
  return lowered;
}

template absl::StatusOr<LoweredCudaModel<float>> LowerToCuda(const Model&, DeviceWeights&,
                                                             DenseLayers*, KernelChoice<float>*);
template absl::StatusOr<LoweredCudaModel<kernels::cuda::BFloat16>> LowerToCuda(
    const Model&, DeviceWeights&, DenseLayers*, KernelChoice<kernels::cuda::BFloat16>*);

}  // namespace sluice
