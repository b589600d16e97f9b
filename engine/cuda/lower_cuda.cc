#include "engine/cuda/lower_cuda.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "engine/cuda/dense_shapes.h"
#include "engine/cuda/joined_graph.h"
#include "engine/cuda/op_weights.h"
#include "kernels/cuda/activation.h"
#include "kernels/cuda/embedding.h"
#include "kernels/cuda/exchange.h"
#include "kernels/cuda/int8.h"
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
      : model_(model),
        config_(model.config),
        graph_(graph),
        source_(model.checkpoint),
        weights_(weights),
        of_ops_(model, graph, weights),
        dense_(dense),
        kernels_(kernels) {}

  // Lowers all ops but the head, in order.
  absl::Status Lower(std::vector<CudaOp<T>>* ops) {
    for (size_t i = 0; i < graph_.ops.size(); ++i) {
      next_ = i + 1 < graph_.ops.size() ? &graph_.ops[i + 1] : nullptr;
      next_is_done_ = false;
      SLUICE_ASSIGN_OR_RETURN(CudaOp<T> cuda_op, std::visit(*this, graph_.ops[i]));
      if (cuda_op != nullptr) ops->push_back(std::move(cuda_op));
      for (const size_t last = next_is_done_ ? i + 1 : i;; ++i) {
        if (WrittenBuffer(graph_.ops[i]) == quantized_) quantized_ = kNoBuffer;
        if (i == last) break;
      }
    }
    return absl::OkStatus();
  }

  CudaOpOr operator()(const EmbedOp& op) {
    SLUICE_ASSIGN_OR_RETURN(const T* const table,
                            weights_.Load<T>(source_, op.table, ElementsOf(op.table)));
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
    SLUICE_ASSIGN_OR_RETURN(const T* const bias, of_ops_.Bias<T>(op));
    if (PrecisionOf(model_, op).quantization == Quantization::kInt8) return Int8Product(op, bias);
    SLUICE_ASSIGN_OR_RETURN(const T* const plain, of_ops_.Weight<T>(op));
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
    const int32_t matrices = of_ops_.Matrices(op);
    const Epilogue then = TakeActivation(op);
    SLUICE_ASSIGN_OR_RETURN(const GroupedProductCandidate<T>* const kernel,
                            ProductKernel({.k = k,
                                           .n = n,
                                           .matrices = matrices,
                                           .bias = bias != nullptr,
                                           .position_bias = op.position_bias,
                                           .accumulate = op.accumulate,
                                           .activate = then.activate,
                                           .activation = then.activation,
                                           .gated = then.gate != kNoBuffer},
                                          plain, bias));
    SLUICE_ASSIGN_OR_RETURN(const T* const weight,
                            weights_.Pack(plain, kernel->layout, matrices, k, n));
    workspace_bytes_ = std::max<size_t>(workspace_bytes_, cuda::SplitSumsBytes(k));
    return [op, kernel, weight, bias, k, n, then](const StepPlace<T>& place, Stream& stream) {
      cuda::ProjectionArgs<T> args = ProductArgs<T>(op, n, bias, then, place);
      args.x = place.buffer(op.in);
      args.weight = weight;
      args.k = k;
      args.split = place.split_sums(k);
      kernel->run(stream, args);
    };
  }

  CudaOpOr operator()(const RopeStoreOp& op) {
    SLUICE_ASSIGN_OR_RETURN(const DeviceRope rope, of_ops_.Rope(op));
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
    SLUICE_ASSIGN_OR_RETURN(xsa.gate, of_ops_.Gates(op));
    SLUICE_ASSIGN_OR_RETURN(const float* const bias, of_ops_.RelativeBias(op));
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
      SLUICE_ASSIGN_OR_RETURN(head_.weight, weights_.Pack(head, cuda::WeightLayout::kPanels, 1,
                                                          Width32(op.in), columns));
    }
    return CudaOp<T>();
  }

  const HeadWeights<T>& head() const { return head_; }
  bool uses_library() const { return uses_library_; }
  size_t workspace_bytes() const { return workspace_bytes_; }
  int32_t quantized_stride() const { return quantized_stride_; }

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
  // What a product applies to its sums.
  struct Epilogue {
    bool activate = false;
    Activation activation = {};
    BufferId gate = kNoBuffer;
  };
  // Returns the activation behind the layer, which the layer then applies.
  Epilogue TakeActivation(const LinearOp& op) {
    const ActivationOp* const then = ActivationOf(next_, op.out);
    if (then == nullptr) return {};
    next_is_done_ = true;
    return {true, then->activation, then->in != op.out ? then->in : kNoBuffer};
  }

  // Returns the arguments of a layer's product that do not depend on its operands.
  template <typename Operand>
  static cuda::ProjectionArgs<T, T, Operand> ProductArgs(const LinearOp& op, int32_t n,
                                                         const T* bias, const Epilogue& then,
                                                         const StepPlace<T>& place) {
    return {.x = nullptr,
            .weight = nullptr,
            .bias = bias,
            .bias_stride = op.position_bias ? n : 0,
            .k = 0,
            .n = n,
            .tiles = op.position_wise() ? place.group_tiles() : place.dense_tiles(),
            .accumulate = op.accumulate,
            .out = place.buffer(op.out),
            .activate = then.activate,
            .activation = then.activation,
            .gate = Buffer(then.gate, place)};
  }

  // A layer quantises the rows that it reads, unless they are those of the layer before. Its sums
  // are exact, so that no trial is needed.
  CudaOpOr Int8Product(const LinearOp& op, const T* bias) {
    SLUICE_ASSIGN_OR_RETURN(const Int8Weight weight, of_ops_.Int8(op));
    const int32_t width = Width32(op.in), n = Width32(op.out), k = cuda::Int8Stride(width);
    const Epilogue then = TakeActivation(op);
    const bool quantizes = quantized_ != op.in;
    quantized_ = op.in;
    quantized_stride_ = std::max(quantized_stride_, k);
    workspace_bytes_ = std::max<size_t>(workspace_bytes_, cuda::SplitSumsBytes(k));
    return [op, weight, bias, width, k, n, then, quantizes](const StepPlace<T>& place,
                                                            Stream& stream) {
      auto* const values = place.template at<int8_t>(place.layout.quantized);
      auto* const scales = place.template at<float>(place.layout.row_scales);
      if (quantizes) {
        cuda::QuantizeRows<T>(stream, {.x = place.buffer(op.in),
                                       .k = width,
                                       .rows = place.rows(),
                                       .out = values,
                                       .scales = scales});
      }
      auto args = ProductArgs<int8_t>(op, n, bias, then, place);
      args.x = values;
      args.weight = weight.values;
      args.k = k;
      args.split = place.split_sums(k);
      args.row_scales = scales;
      args.scales = weight.scales;
      cuda::Project(stream, args);
    };
  }

  static const T* Buffer(BufferId id, const StepPlace<T>& place) {
    return id == kNoBuffer ? nullptr : place.buffer(id);
  }
  int64_t Width(BufferId id) const { return graph_.buffers[id].width; }
  int32_t Width32(BufferId id) const { return Width(id); }
  // Returns the elements from row to row, or 0 if the rows are contiguous.
  int64_t RowStride(BufferId id) const {
    const BufferId within = graph_.buffers[id].within;
    return within == kNoBuffer ? 0 : Width(within);
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

  const Model& model_;
  const ModelConfig& config_;
  const Graph& graph_;
  const Checkpoint& source_;
  DeviceWeights& weights_;
  OpWeights of_ops_;
  DenseLayers* dense_;        // nullptr if there are none
  KernelChoice<T>* kernels_;  // nullptr if the portable ones serve without a trial
  HeadWeights<T> head_;
  bool uses_library_ = false;
  size_t workspace_bytes_ = 0;      // the most that a layer takes
  int32_t quantized_stride_ = 0;    // of the widest rows that a layer quantises
  BufferId quantized_ = kNoBuffer;  // the buffer whose rows are quantised at this point
  const GraphOp* next_ = nullptr;   // behind the op that is lowered; nullptr if there is none
  bool next_is_done_ = false;       // whether the op before includes it
};

}  // namespace

template <typename T>
absl::StatusOr<LoweredCudaModel<T>> LowerToCuda(const Model& model, DeviceWeights& weights,
                                                DenseLayers* dense, KernelChoice<T>* kernels) {
  LoweredCudaModel<T> lowered;
  lowered.graph = JoinProjections(model.graph, /*gates=*/dense != nullptr,
                                  [&](const LinearOp& a, const LinearOp& b) {
                                    return PrecisionOf(model, a) == PrecisionOf(model, b);
                                  });
  Lowering<T> lowering(model, lowered.graph, weights, dense, kernels);
  SLUICE_RETURN_IF_ERROR(lowering.Lower(&lowered.ops));
  SLUICE_RETURN_IF_ERROR(weights.Finish());
  lowered.head = lowering.head();
  lowered.uses_library = lowering.uses_library();
  lowered.workspace_bytes = lowering.workspace_bytes();
  lowered.quantized_stride = lowering.quantized_stride();
  lowered.processors = weights.device_info().processors;
  return lowered;
}

template absl::StatusOr<LoweredCudaModel<float>> LowerToCuda(const Model&, DeviceWeights&,
                                                             DenseLayers*, KernelChoice<float>*);
template absl::StatusOr<LoweredCudaModel<kernels::cuda::BFloat16>> LowerToCuda(
    const Model&, DeviceWeights&, DenseLayers*, KernelChoice<kernels::cuda::BFloat16>*);

}  // namespace sluice
