#include "engine/cuda/lower_products.h"

#include <algorithm>
#include <optional>
#include <type_traits>
#include <utility>

#include "base/check.h"
#include "base/status_macros.h"
#include "engine/cuda/dense_shapes.h"
#include "kernels/cuda/gated_projection.h"
#include "kernels/cuda/int8.h"
#include "kernels/cuda/projection.h"

namespace sluice {
namespace {

namespace cuda = kernels::cuda;

template <typename T>
constexpr DenseType kDenseType = sizeof(T) == sizeof(cuda::BFloat16) ? DenseType::kBF16
                                                                     : DenseType::kF32;

static_assert(CudaHead<float>::kWideRows <= kMaxHeadRows);

}  // namespace

template <typename T>
absl::StatusOr<LoweredLayer<T>> ProductLowering<T>::Lower(const LinearOp& op, const GraphOp* next) {
  if (op.routes) {
    SLUICE_ASSIGN_OR_RETURN(CudaOp<T> router, Router(op));
    return LoweredLayer<T>{std::move(router)};
  }
  const ActivationOp* const then = ActivationOf(next, op.out);
  const Epilogue epilogue = EpilogueOf(then, op.out);
  SLUICE_ASSIGN_OR_RETURN(const T* const bias, of_ops_.Bias<T>(op));
  if (PrecisionOf(model_, op).quantization == Quantization::kInt8) {
    return Int8Product(op, bias, epilogue);
  }
  SLUICE_ASSIGN_OR_RETURN(const T* const weight, of_ops_.Weight<T>(op));
  SLUICE_ASSIGN_OR_RETURN(const LibraryLayer found, FindInLibrary(op, weight, bias, then));
  if (found.layer == nullptr) {
    Count(op, nullptr);
    SLUICE_ASSIGN_OR_RETURN(CudaOp<T> product, OwnProduct(op, weight, bias, epilogue));
    return LoweredLayer<T>{std::move(product), epilogue.activate};
  }
  uses_library_ = true;
  const DenseShape shape = *ShapeOf(graph_, op, kDenseType<T>);
  Count(op, &shape);
  const auto run = [op, weight, bias, layer = found.layer, shape](const StepPlace<T>& place,
                                                                  DeviceStream& stream) {
    RunInSlices(*layer, shape,
                {.x = place.buffer(op.in),
                 .weight = weight,
                 .bias = bias,
                 .rows = place.bucket.tokens,
                 .out = place.buffer(op.out),
                 .workspace = place.workspace()},
                stream);
  };
  return LoweredLayer<T>{run, found.includes_next};
}

template <typename T>
absl::StatusOr<CudaOp<T>> ProductLowering<T>::LowerGated(const GatedLayers& layers) {
  const LinearOp &gate = layers.gate, &up = layers.up;
  const auto quantization = [this](const LinearOp& op) {
    return PrecisionOf(model_, op).quantization;
  };
  if (quantization(gate) != quantization(up)) return CudaOp<T>();
  if (dense_ != nullptr && gate.one_matrix()) return CudaOp<T>();
  if (quantization(gate) == Quantization::kInt8) return GatedInt8(layers);
  if (sizeof(T) == sizeof(float)) return CudaOp<T>();
  SLUICE_ASSIGN_OR_RETURN(const T* const gate_bias, of_ops_.Bias<T>(gate));
  SLUICE_ASSIGN_OR_RETURN(const T* const up_bias, of_ops_.Bias<T>(up));
  if ((gate_bias != nullptr) != (up_bias != nullptr) || gate.bias_each != up.bias_each) {
    return CudaOp<T>();
  }
  SLUICE_ASSIGN_OR_RETURN(const T* const gate_weight, of_ops_.Weight<T>(gate));
  SLUICE_ASSIGN_OR_RETURN(const T* const up_weight, of_ops_.Weight<T>(up));
  const Epilogue then = EpilogueOf(&layers.activation, up.out);
  GroupedProductShape shape = ShapeOfOwn(up, up_bias, then);
  shape.gate_layer = true;
  const auto kernel = Kernel(shape, up_weight, up_bias, {gate_weight, gate_bias});
  // Each layer may still have a kernel that passes.
  if (absl::IsFailedPrecondition(kernel.status())) return CudaOp<T>();
  SLUICE_RETURN_IF_ERROR(kernel.status());
  if ((*kernel)->run_gated == nullptr) return CudaOp<T>();
  Count(gate, nullptr);
  Count(up, nullptr);
  SLUICE_ASSIGN_OR_RETURN(const OwnLayer<T> first,
                          Packed(gate, gate_weight, gate_bias, {}, (*kernel)->layout));
  SLUICE_ASSIGN_OR_RETURN(const OwnLayer<T> second,
                          Packed(up, up_weight, up_bias, then, (*kernel)->layout));
  return [kernel = *kernel, first, second](const StepPlace<T>& place, DeviceStream& stream) {
    kernel->RunBoth(stream, first.ArgsAt(place), second.ArgsAt(place));
  };
}

template <typename T>
void ProductLowering<T>::Count(const LinearOp& op, const DenseShape* shape) {
  const double multiply_adds = double{1} * Width(op.in) * Width(op.out) * Rows(op.in);
  multiply_adds_ += multiply_adds;
  if (shape != nullptr) of_library_[{MaxRows(*shape), MinRows(*shape)}] += multiply_adds;
}

template <typename T>
ComputedRows ProductLowering<T>::computed_rows() const {
  std::vector<ComputedRows::BucketLayers> layers;
  layers.reserve(of_library_.size());
  for (const auto& [rows, multiply_adds] : of_library_) {
    layers.push_back(
        {.share = multiply_adds / multiply_adds_, .slice = rows.first, .least = rows.second});
  }
  return ComputedRows::OfLayers(std::move(layers));
}

template <typename T>
void ProductLowering<T>::Wrote(BufferId buffer) {
  if (buffer == quantized_) quantized_ = kNoBuffer;
}

template <typename T>
absl::StatusOr<HeadWeights<T>> ProductLowering<T>::Head(const HeadOp& op) {
  const int64_t vocab = model_.config.vocab_size;
  const int32_t columns = PaddedVocab(vocab);
  SLUICE_ASSIGN_OR_RETURN(const T* const bias,
                          weights_.Load<T>(model_.checkpoint, op.bias, vocab, columns));
  SLUICE_ASSIGN_OR_RETURN(const T* const weight,
                          weights_.LoadDense<T>(model_.checkpoint, op.weight, MatrixLayout::kOutIn,
                                                Width(op.in), vocab, columns));
  HeadWeights<T> head = {weight, bias, op.soft_cap};
  if (const auto shape = ShapeOf(graph_, op, vocab, kDenseType<T>); shape && dense_ != nullptr) {
    SLUICE_ASSIGN_OR_RETURN(head.layer, dense_->Find(*shape, weight, nullptr));
  }
  if (head.layer == nullptr) {
    SLUICE_ASSIGN_OR_RETURN(
        head.weight, weights_.Pack(weight, cuda::WeightLayout::kPanels, 1, Width(op.in), columns));
  }
  return head;
}

template <typename T>
typename ProductLowering<T>::Epilogue ProductLowering<T>::EpilogueOf(const ActivationOp* then,
                                                                     BufferId out) {
  if (then == nullptr) return {};
  return {true, then->activation, then->in != out ? then->in : kNoBuffer};
}

template <typename T>
template <typename Operand>
cuda::ProjectionArgs<T, T, Operand> ProductLowering<T>::OwnLayer<Operand>::ArgsAt(
    const StepPlace<T>& place) const {
  cuda::ProjectionArgs<T, T, Operand> args = {
      .x = nullptr,
      .weight = weight,
      .bias = bias,
      .bias_stride = op.bias_each ? n : 0,
      .k = k,
      .n = n,
      .tiles = place.tiles(op.index),
      .accumulate = op.accumulate,
      .out = place.buffer(op.out),
      .activate = then.activate,
      .activation = then.activation,
      .gate = then.gate == kNoBuffer ? nullptr : place.buffer(then.gate)};
  if constexpr (std::is_same_v<Operand, int8_t>) {
    args.x = place.template at<int8_t>(place.layout.quantized);
    args.row_scales = place.template at<float>(place.layout.row_scales);
    args.scales = scales;
  } else {
    args.x = place.buffer(op.in);
  }
  return args;
}

template <typename T>
absl::StatusOr<CudaOp<T>> ProductLowering<T>::Router(const LinearOp& op) {
  const int32_t k = Width(op.in), n = Width(op.out);
  Count(op, nullptr);
  SLUICE_ASSIGN_OR_RETURN(const T* const plain, of_ops_.Weight<T>(op));
  SLUICE_ASSIGN_OR_RETURN(const T* const weight,
                          weights_.Pack(plain, cuda::WeightLayout::kPanels, 1, k, n));
  return [op, weight, k, n](const StepPlace<T>& place, DeviceStream& stream) {
    cuda::Project<T, float>(stream,
                            {.x = place.buffer(op.in),
                             .weight = weight,
                             .bias = nullptr,
                             .bias_stride = 0,
                             .k = k,
                             .n = n,
                             .tiles = place.dense_tiles(),
                             .accumulate = false,
                             .out = place.template at<float>(place.layout.buffers[op.out])});
  };
}

// The library computes the layer if one of its algorithms passes a trial. The bits equal our
// kernel's either way, since sums are exact and the activation is a separate step.
template <typename T>
absl::StatusOr<LoweredLayer<T>> ProductLowering<T>::Int8Product(const LinearOp& op, const T* bias,
                                                                const Epilogue& then) {
  SLUICE_ASSIGN_OR_RETURN(const Int8Weight weight, of_ops_.Int8(op));
  const std::optional<DenseShape> shape = ShapeOf(graph_, op, DenseType::kInt8);
  if (dense_ != nullptr && shape) {
    SLUICE_ASSIGN_OR_RETURN(const DenseFamily* const layer,
                            dense_->Find(*shape, weight.values, nullptr));
    if (layer != nullptr) {
      Count(op, &*shape);
      return LoweredLayer<T>{Int8ByLibrary(op, *layer, weight, bias), /*includes_next=*/false};
    }
  }
  Count(op, nullptr);
  SLUICE_ASSIGN_OR_RETURN(const OwnLayer<int8_t> layer, OwnInt8(op, weight, bias, then));
  const auto run = [layer, quantize = Quantizer(op)](const StepPlace<T>& place,
                                                     DeviceStream& stream) {
    quantize(place, stream);
    cuda::Project(stream, layer.ArgsAt(place));
  };
  return LoweredLayer<T>{run, then.activate};
}

template <typename T>
absl::StatusOr<CudaOp<T>> ProductLowering<T>::GatedInt8(const GatedLayers& layers) {
  const LinearOp &gate = layers.gate, &up = layers.up;
  SLUICE_ASSIGN_OR_RETURN(const T* const gate_bias, of_ops_.Bias<T>(gate));
  SLUICE_ASSIGN_OR_RETURN(const T* const up_bias, of_ops_.Bias<T>(up));
  SLUICE_ASSIGN_OR_RETURN(const Int8Weight gate_weight, of_ops_.Int8(gate));
  SLUICE_ASSIGN_OR_RETURN(const Int8Weight up_weight, of_ops_.Int8(up));
  SLUICE_ASSIGN_OR_RETURN(const OwnLayer<int8_t> first, OwnInt8(gate, gate_weight, gate_bias, {}));
  SLUICE_ASSIGN_OR_RETURN(const OwnLayer<int8_t> second,
                          OwnInt8(up, up_weight, up_bias, EpilogueOf(&layers.activation, up.out)));
  Count(gate, nullptr);
  Count(up, nullptr);
  return
      [first, second, quantize = Quantizer(gate)](const StepPlace<T>& place, DeviceStream& stream) {
        quantize(place, stream);
        const auto of_gate = first.ArgsAt(place), of_up = second.ArgsAt(place);
        if (cuda::ProjectGated(stream, of_gate, of_up)) return;
        cuda::Project(stream, of_gate);
        cuda::Project(stream, of_up);
      };
}

template <typename T>
CudaOp<T> ProductLowering<T>::Int8ByLibrary(const LinearOp& op, const DenseFamily& layer,
                                            const Int8Weight& weight, const T* bias) {
  const DenseShape shape = *ShapeOf(graph_, op, DenseType::kInt8);
  workspace_bytes_ = std::max(workspace_bytes_, layer.workspace_bytes());
  int8_width_ = std::max(int8_width_, shape.n);
  return [op, &layer, weight, bias, shape, quantize = Quantizer(op)](const StepPlace<T>& place,
                                                                     DeviceStream& stream) {
    quantize(place, stream);
    RunInt8InSlices<T>(layer, shape,
                       {.x = place.template at<int8_t>(place.layout.quantized),
                        .weight = weight.values,
                        .bias = nullptr,
                        .rows = place.bucket.tokens,
                        .out = place.template at<int32_t>(place.layout.int8_sums),
                        .workspace = place.workspace()},
                       {.sums = nullptr,
                        .n = shape.n,
                        .rows = place.rows(),
                        .row_scales = place.template at<float>(place.layout.row_scales),
                        .scales = weight.scales,
                        .bias = bias,
                        .accumulate = op.accumulate,
                        .out = place.buffer(op.out)},
                       stream);
  };
}

template <typename T>
absl::StatusOr<typename ProductLowering<T>::template OwnLayer<int8_t>> ProductLowering<T>::OwnInt8(
    const LinearOp& op, const Int8Weight& weight, const T* bias, const Epilogue& then) {
  const int32_t n = Width(op.out), k = cuda::Int8Stride(Width(op.in));
  SLUICE_ASSIGN_OR_RETURN(const int8_t* const packed,
                          weights_.Pack(weight.values, cuda::WeightLayout::kPanels,
                                        static_cast<int32_t>(op.matrices), k, n));
  return OwnLayer<int8_t>{op, k, n, bias, then, packed, weight.scales};
}

template <typename T>
CudaOp<T> ProductLowering<T>::Quantizer(const LinearOp& op) {
  const int32_t k = Width(op.in);
  const int64_t rows_each = Rows(op.in);
  quantized_width_ = std::max(quantized_width_, rows_each * cuda::Int8Stride(k));
  if (std::exchange(quantized_, op.in) == op.in) return [](const StepPlace<T>&, DeviceStream&) {};
  return [in = op.in, k, rows_each](const StepPlace<T>& place, DeviceStream& stream) {
    cuda::QuantizeRows<T>(stream, {.x = place.buffer(in),
                                   .k = k,
                                   .rows = place.rows(rows_each),
                                   .out = place.template at<int8_t>(place.layout.quantized),
                                   .scales = place.template at<float>(place.layout.row_scales)});
  };
}

template <typename T>
absl::StatusOr<CudaOp<T>> ProductLowering<T>::OwnProduct(const LinearOp& op, const T* plain,
                                                         const T* bias, const Epilogue& then) {
  SLUICE_ASSIGN_OR_RETURN(const GroupedProductCandidate<T>* const kernel,
                          Kernel(ShapeOfOwn(op, bias, then), plain, bias));
  SLUICE_ASSIGN_OR_RETURN(const OwnLayer<T> layer, Packed(op, plain, bias, then, kernel->layout));
  return [kernel, layer](const StepPlace<T>& place, cuda::Stream& stream) {
    kernel->run(stream, layer.ArgsAt(place));
  };
}

template <typename T>
absl::StatusOr<typename ProductLowering<T>::template OwnLayer<T>> ProductLowering<T>::Packed(
    const LinearOp& op, const T* plain, const T* bias, const Epilogue& then,
    cuda::WeightLayout layout) {
  const int32_t k = Width(op.in), n = Width(op.out);
  SLUICE_ASSIGN_OR_RETURN(const T* const weight,
                          weights_.Pack(plain, layout, static_cast<int32_t>(op.matrices), k, n));
  return OwnLayer<T>{op, k, n, bias, then, weight};
}

template <typename T>
GroupedProductShape ProductLowering<T>::ShapeOfOwn(const LinearOp& op, const T* bias,
                                                   const Epilogue& then) const {
  return {.k = Width(op.in),
          .n = Width(op.out),
          .matrices = static_cast<int32_t>(op.matrices),
          .bias = bias != nullptr,
          .position_bias = op.bias_each,
          .accumulate = op.accumulate,
          .activate = then.activate,
          .activation = then.activation,
          .gated = then.gate != kNoBuffer};
}

template <typename T>
absl::StatusOr<const GroupedProductCandidate<T>*> ProductLowering<T>::Kernel(
    const GroupedProductShape& shape, const T* weight, const T* bias, const GateWeights<T>& gate) {
  if (kernels_ != nullptr) return kernels_->Product(shape, weight, bias, gate);
  return &PortableProduct<T>();
}

// The library applies the activation that follows the layer if it has the right one. It does so
// before rounding, so the bits differ from our kernels' bits.
template <typename T>
absl::StatusOr<typename ProductLowering<T>::LibraryLayer> ProductLowering<T>::FindInLibrary(
    const LinearOp& op, const T* weight, const T* bias, const ActivationOp* then) {
  const std::optional<DenseShape> shape = ShapeOf(graph_, op, kDenseType<T>);
  if (dense_ == nullptr || !shape) return LibraryLayer();
  LibraryLayer found;
  if (const auto whole = WithActivation(*shape, then)) {
    SLUICE_ASSIGN_OR_RETURN(found.layer, dense_->Find(*whole, weight, bias));
    found.includes_next = found.layer != nullptr;
  }
  if (found.layer == nullptr) {
    SLUICE_ASSIGN_OR_RETURN(found.layer, dense_->Find(*shape, weight, bias));
  }
  if (found.layer != nullptr) {
    workspace_bytes_ = std::max(workspace_bytes_, found.layer->workspace_bytes());
  }
  return found;
}

template class ProductLowering<float>;
template class ProductLowering<cuda::BFloat16>;

}  // namespace sluice
