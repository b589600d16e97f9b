#include "engine/cuda/lower_cuda.h"

#include <utility>
#include <variant>

#include "base/check.h"
#include "base/status_macros.h"
#include "engine/cuda/cuda_adapter.h"
#include "engine/cuda/gated_layers.h"
#include "engine/cuda/joined_graph.h"
#include "engine/cuda/lower_products.h"
#include "engine/cuda/op_weights.h"
#include "engine/cuda/relative_tables.h"
#include "kernels/cuda/activation.h"
#include "kernels/cuda/embedding.h"
#include "kernels/cuda/exchange.h"
#include "kernels/cuda/mix.h"
#include "kernels/cuda/norm.h"
#include "kernels/cuda/projection.h"
#include "kernels/cuda/rope.h"
#include "kernels/cuda/route.h"

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
           SelectedKernels<T>* kernels)
      : config_(model.config),
        graph_(graph),
        source_(model.checkpoint),
        weights_(weights),
        of_ops_(model, graph, weights),
        relative_(model, weights),
        products_(model, graph, weights, of_ops_, dense, kernels),
        kernels_(kernels) {}

  // Lowers all ops but the head, in order.
  absl::Status Lower(std::vector<CudaOp<T>>* ops) {
    for (size_t i = 0; i < graph_.ops.size(); ++i) {
      at_ = i;
      included_ = 0;
      SLUICE_ASSIGN_OR_RETURN(CudaOp<T> cuda_op, std::visit(*this, graph_.ops[i]));
      if (cuda_op != nullptr) ops->push_back(std::move(cuda_op));
      products_.Wrote(WrittenBuffer(graph_.ops[i]));
      for (; included_ > 0; --included_) products_.Wrote(WrittenBuffer(graph_.ops[++i]));
    }
    return absl::OkStatus();
  }

  CudaOpOr operator()(const EmbedOp& op) {
    SLUICE_ASSIGN_OR_RETURN(const T* const table,
                            weights_.Load<T>(source_, op.table, ElementsOf(op.table)));
    const auto embed = [op, table, dim = Width32(op.out)](const StepPlace<T>& place,
                                                          DeviceStream& stream) {
      cuda::Embed<T>(stream, {.table = table,
                              .ids = Ids(op.index, place),
                              .drawn = place.drawn,
                              .dim = dim,
                              .accumulate = op.accumulate,
                              .scale = op.scale,
                              .rows = place.rows(),
                              .out = place.buffer(op.out)});
    };
    if (!graph_.takes_adapters || !op.adaptable()) return embed;
    return WithAdapters(
        embed, op.out,
        [op, width = MaxRank(), matrix = PlaceOfA(at_)](const StepPlace<T>& place, Stream& stream) {
          cuda::EmbedPlaced<T>(stream, {.ids = Ids(op.index, place),
                                        .drawn = place.drawn,
                                        .tiles = place.adapter_tiles(),
                                        .tables = place.adapters(matrix),
                                        .stride = width,
                                        .out = Adapted(place)});
        });
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
    SLUICE_CHECK(RowStride(op.in) == 0 && RowStride(op.out) == 0);
    if (graph_.takes_adapters && op.adaptable()) return LowerAdapted(op);
    if (const auto gated = GatedLayersAt(graph_, at_)) {
      SLUICE_ASSIGN_OR_RETURN(CudaOp<T> both, products_.LowerGated(*gated));
      if (both != nullptr) {
        included_ = 2;
        return both;
      }
    }
    const GraphOp* const next = at_ + 1 < graph_.ops.size() ? &graph_.ops[at_ + 1] : nullptr;
    SLUICE_ASSIGN_OR_RETURN(LoweredLayer<T> layer, products_.Lower(op, next));
    included_ = layer.includes_next ? 1 : 0;
    return std::move(layer.cuda_op);
  }

  CudaOpOr operator()(const RouteOp& op) {
    return CudaOp<T>([op, dim = Width32(op.in)](const StepPlace<T>& place, Stream& stream) {
      cuda::Route(stream,
                  {.logits = place.template at<const float>(place.layout.buffers[op.logits]),
                   .softmax = op.softmax,
                   .rows = place.rows(),
                   .routes = place.routes()});
      cuda::CopyToPlaces<T>(stream, {.x = place.buffer(op.in),
                                     .dim = dim,
                                     .rows = place.rows(),
                                     .routes = place.routes(),
                                     .out = place.buffer(op.out)});
    });
  }

  CudaOpOr operator()(const CombineOp& op) {
    SLUICE_ASSIGN_OR_RETURN(const T* const bias, weights_.Load<T>(source_, op.bias, Width(op.out)));
    return [op, bias, dim = Width32(op.out)](const StepPlace<T>& place, Stream& stream) {
      cuda::Combine<T>(stream, {.x = place.buffer(op.in),
                                .bias = bias,
                                .dim = dim,
                                .accumulate = op.accumulate,
                                .rows = place.rows(),
                                .routes = place.routes(),
                                .out = place.buffer(op.out)});
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
    if (op.relative) return LowerRelative(op);
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
      cuda::AttentionArgs<T> args = AttentionArgsOf(op, heads, stride, place);
      args.window = static_cast<int32_t>(op.window);
      args.soft_cap = op.soft_cap;
      args.bias = bias;
      args.bias_positions = positions;
      args.silu_share = op.silu_share;
      args.xsa = xsa;
      args.scratch = place.template at<float>(place.layout.attention_scratch);
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
    return [op, stride, dim = Width32(op.in), rows_each = graph_.buffers[op.in].rows](
               const StepPlace<T>& place, Stream& stream) {
      cuda::Activate<T>(stream, {.activation = op.activation,
                                 .in = place.buffer(op.in),
                                 .up = Buffer(op.up, place),
                                 .dim = dim,
                                 .stride = stride,
                                 .rows = place.rows(rows_each),
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
    SLUICE_ASSIGN_OR_RETURN(head_, products_.Head(op));
    return CudaOp<T>();
  }

  const HeadWeights<T>& head() const { return head_; }
  const ProductLowering<T>& products() const { return products_; }

 private:
  // Lowers a layer and the products of adapters that follow it. No activation is applied by the
  // layer, because it is a function of both.
  CudaOpOr LowerAdapted(const LinearOp& op) {
    SLUICE_ASSIGN_OR_RETURN(LoweredLayer<T> layer, products_.Lower(op, /*next=*/nullptr));
    return WithAdapters(std::move(layer.cuda_op), op.out,
                        [op, k = Width32(op.in), n = MaxRank(), matrix = PlaceOfA(at_)](
                            const StepPlace<T>& place, Stream& stream) {
                          cuda::MatrixTables matrices = place.adapters(matrix);
                          matrices.max_n = &place.counts().adapter_rank;
                          MultiplyByAdapters(place, stream, matrices, place.buffer(op.in), k,
                                             Adapted(place), n,
                                             /*accumulate=*/false);
                        });
  }

  // Returns `base`, then `reduce`, which writes the products of the matrices A, and then the
  // products of these and the matrices B, which are added to `out`. The launches are the same for
  // every mix of adapters. Without adapters there are no tiles.
  template <typename Base, typename Reduce>
  CudaOp<T> WithAdapters(Base base, BufferId out, Reduce reduce) {
    return [base = std::move(base), reduce, out, k = MaxRank(), n = Width32(out),
            matrix = PlaceOfB(at_)](const StepPlace<T>& place, DeviceStream& stream) {
      base(place, stream);
      reduce(place, stream);
      MultiplyByAdapters(place, stream, place.adapters(matrix), Adapted(place), k,
                         place.buffer(out), n, /*accumulate=*/true);
    };
  }
  static void MultiplyByAdapters(const StepPlace<T>& place, Stream& stream,
                                 const cuda::MatrixTables& matrices, const T* x, int32_t k, T* out,
                                 int32_t n, bool accumulate) {
    cuda::ProjectPlaced<T>(stream,
                           {.x = x,
                            .weight = nullptr,
                            .bias = nullptr,
                            .bias_stride = 0,
                            .k = k,
                            .n = n,
                            .tiles = place.adapter_tiles(),
                            .accumulate = accumulate,
                            .out = out},
                           matrices);
  }
  // Returns the products of the matrices A.
  static T* Adapted(const StepPlace<T>& place) {
    return place.template at<T>(place.layout.adapted);
  }
  int32_t MaxRank() const { return static_cast<int32_t>(MaxJoinedRank(graph_)); }

  // Returns the arguments that both kinds of attention use.
  static cuda::AttentionArgs<T> AttentionArgsOf(const AttentionOp& op, int32_t heads,
                                                int64_t stride, const StepPlace<T>& place) {
    cuda::AttentionArgs<T> args{};
    args.q = place.buffer(op.q);
    args.sequences = place.template at<const cuda::AttentionSequence>(place.layout.sequences);
    args.rows = place.template at<const int32_t>(place.layout.sequence_rows);
    args.pages = place.template at<const int32_t>(place.layout.pages);
    args.tiles = place.attention_tiles();
    args.kv = place.kv[op.layer];
    args.q_heads = heads;
    args.q_stride = stride;
    args.scale = op.scale;
    args.causal = op.causal;
    args.out = place.buffer(op.out);
    return args;
  }

  CudaOpOr LowerRelative(const AttentionOp& op) {
    SLUICE_ASSIGN_OR_RETURN(const cuda::RelativeTable table, relative_.Make(op));
    const int32_t heads = config_.heads;
    return [op, table, heads, stride = RowStride(op.q)](const StepPlace<T>& place, Stream& stream) {
      cuda::RelativeAttention<T>(stream,
                                 {.op = AttentionArgsOf(op, heads, stride, place), .table = table});
    };
  }

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

  const ModelConfig& config_;
  const Graph& graph_;
  const Checkpoint& source_;
  DeviceWeights& weights_;
  OpWeights of_ops_;
  DeviceRelativeTables relative_;
  ProductLowering<T> products_;
  SelectedKernels<T>* kernels_;  // nullptr if the portable ones serve without a trial
  HeadWeights<T> head_;
  size_t at_ = 0;         // the op that is lowered
  int32_t included_ = 0;  // the ops after it that its kernels compute
};

}  // namespace

template <typename T>
absl::StatusOr<LoweredCudaModel<T>> LowerToCuda(const Model& model, DeviceWeights& weights,
                                                DenseLayers* dense, SelectedKernels<T>* kernels) {
  LoweredCudaModel<T> lowered;
  lowered.graph = JoinProjections(model.graph, /*gates=*/dense != nullptr,
                                  [&](const LinearOp& a, const LinearOp& b) {
                                    return PrecisionOf(model, a) == PrecisionOf(model, b);
                                  });
  Lowering<T> lowering(model, lowered.graph, weights, dense, kernels);
  SLUICE_RETURN_IF_ERROR(lowering.Lower(&lowered.ops));
  SLUICE_RETURN_IF_ERROR(weights.Finish());
  lowered.head = lowering.head();
  lowered.uses_library = lowering.products().uses_library();
  lowered.workspace_bytes = lowering.products().workspace_bytes();
  lowered.quantized_width = lowering.products().quantized_width();
  lowered.int8_width = lowering.products().int8_width();
  lowered.computed_rows = lowering.products().computed_rows();
  lowered.adapted_width = MaxJoinedRank(lowered.graph);
  lowered.processors = weights.device_info().processors;
  return lowered;
}

template absl::StatusOr<LoweredCudaModel<float>> LowerToCuda(const Model&, DeviceWeights&,
                                                             DenseLayers*, SelectedKernels<float>*);
template absl::StatusOr<LoweredCudaModel<kernels::cuda::BFloat16>> LowerToCuda(
    const Model&, DeviceWeights&, DenseLayers*, SelectedKernels<kernels::cuda::BFloat16>*);

}  // namespace sluice
