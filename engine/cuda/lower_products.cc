#include "engine/cuda/lower_products.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/status_macros.h"
#include "engine/cuda/dense_shapes.h"
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
void ProductLowering<T>::Count(const LinearOp& op, const DenseShape* shape) {
  const double multiply_adds = double{1} * Width(op.in) * Width(op.out);
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

// Returns the arguments of a layer's product that do not depend on its operands.
template <typename T>
template <typename Operand>
cuda::ProjectionArgs<T, T, Operand> ProductLowering<T>::ProductArgs(const LinearOp& op, int32_t n,
                                                                    const T* bias,
                                                                    const Epilogue& then,
                                                                    const StepPlace<T>& place) {
  return {.x = nullptr,
          .weight = nullptr,
          .bias = bias,
          .bias_stride = op.bias_each ? n : 0,
          .k = 0,
          .n = n,
          .tiles = op.position_wise() ? place.group_tiles() : place.dense_tiles(),
          .accumulate = op.accumulate,
          .out = place.buffer(op.out),
          .activate = then.activate,
          .activation = then.activation,
          .gate = then.gate == kNoBuffer ? nullptr : place.buffer(then.gate)};
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
  SLUICE_ASSIGN_OR_RETURN(CudaOp<T> product, OwnInt8(op, weight, bias, then));
  return LoweredLayer<T>{std::move(product), then.activate};
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
absl::StatusOr<CudaOp<T>> ProductLowering<T>::OwnInt8(const LinearOp& op, const Int8Weight& weight,
                                                      const T* bias, const Epilogue& then) {
  const int32_t n = Width(op.out), k = cuda::Int8Stride(Width(op.in));
  SLUICE_ASSIGN_OR_RETURN(const int8_t* const packed,
                          weights_.Pack(weight.values, cuda::WeightLayout::kPanels,
                                        static_cast<int32_t>(op.matrices), k, n));
  return [op, packed, scales = weight.scales, bias, k, n, then, quantize = Quantizer(op)](
             const StepPlace<T>& place, DeviceStream& stream) {
    quantize(place, stream);
    auto args = ProductArgs<int8_t>(op, n, bias, then, place);
    args.x = place.template at<int8_t>(place.layout.quantized);
    args.weight = packed;
    args.k = k;
    args.row_scales = place.template at<float>(place.layout.row_scales);
    args.scales = scales;
    cuda::Project(stream, args);
  };
}

template <typename T>
CudaOp<T> ProductLowering<T>::Quantizer(const LinearOp& op) {
  const int32_t k = Width(op.in);
  quantized_stride_ = std::max(quantized_stride_, cuda::Int8Stride(k));
  if (std::exchange(quantized_, op.in) == op.in) return [](const StepPlace<T>&, DeviceStream&) {};
  return [in = op.in, k](const StepPlace<T>& place, DeviceStream& stream) {
    cuda::QuantizeRows<T>(stream, {.x = place.buffer(in),
                                   .k = k,
                                   .rows = place.rows(),
                                   .out = place.template at<int8_t>(place.layout.quantized),
                                   .scales = place.template at<float>(place.layout.row_scales)});
  };
}

template <typename T>
absl::StatusOr<CudaOp<T>> ProductLowering<T>::OwnProduct(const LinearOp& op, const T* plain,
                                                         const T* bias, const Epilogue& then) {
  const int32_t k = Width(op.in), n = Width(op.out), matrices = static_cast<int32_t>(op.matrices);
  SLUICE_ASSIGN_OR_RETURN(const GroupedProductCandidate<T>* const kernel,
                          Kernel({.k = k,
                                  .n = n,
                                  .matrices = matrices,
                                  .bias = bias != nullptr,
                                  .position_bias = op.bias_each,
                                  .accumulate = op.accumulate,
                                  .activate = then.activate,
                                  .activation = then.activation,
                                  .gated = then.gate != kNoBuffer},
                                 plain, bias));
  SLUICE_ASSIGN_OR_RETURN(const T* const weight,
                          weights_.Pack(plain, kernel->layout, matrices, k, n));
  return [op, kernel, weight, bias, k, n, then](const StepPlace<T>& place, cuda::Stream& stream) {
    cuda::ProjectionArgs<T> args = ProductArgs<T>(op, n, bias, then, place);
    args.x = place.buffer(op.in);
    args.weight = weight;
    args.k = k;
    kernel->run(stream, args);
  };
}

template <typename T>
absl::StatusOr<const GroupedProductCandidate<T>*> ProductLowering<T>::Kernel(
    const GroupedProductShape& shape, const T* weight, const T* bias) {
  if (kernels_ != nullptr) return kernels_->Product(shape, weight, bias);
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
