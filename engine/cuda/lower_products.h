// Lowers the layers of a graph to products: by the library, in int8, or by this project's kernels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>

#include "absl/status/statusor.h"
#include "engine/cuda/gated_layers.h"
#include "engine/cuda/lower_cuda.h"
#include "engine/cuda/op_weights.h"

namespace sluice {

template <typename T>
struct LoweredLayer {
  CudaOp<T> cuda_op;
  bool includes_next = false;  // the activation after the layer
};

template <typename T>
class ProductLowering {
 public:
  // The arguments outlive this. `graph` is the model's graph with joined projections; `dense` and
  // `kernels` are as in LowerToCuda.
  ProductLowering(const Model& model, const Graph& graph, DeviceWeights& weights, OpWeights& of_ops,
                  DenseLayers* dense, SelectedKernels<T>* kernels)
      : model_(model),
        graph_(graph),
        weights_(weights),
        of_ops_(of_ops),
        dense_(dense),
        kernels_(kernels) {}

  // Lowers a layer. `next` is the following op; nullptr if there is none.
  absl::StatusOr<LoweredLayer<T>> Lower(const LinearOp& op, const GraphOp* next);
  // Lowers both layers of a gated MLP and their activation to one op. Returns a null op if they
  // must be lowered one by one: they differ in precision, the library may compute them, or no
  // kernel computes both.
  absl::StatusOr<CudaOp<T>> LowerGated(const GatedLayers& layers);
  // Records that an op wrote a buffer, so its quantised rows are out of date.
  void Wrote(BufferId buffer);
  // Loads the weights of the head, in the layout that its product reads.
  absl::StatusOr<HeadWeights<T>> Head(const HeadOp& op);

  bool uses_library() const { return uses_library_; }
  size_t workspace_bytes() const { return workspace_bytes_; }
  int64_t quantized_width() const { return quantized_width_; }
  int32_t int8_width() const { return int8_width_; }
  // Returns the rows that the lowered layers compute. The head's are not included.
  ComputedRows computed_rows() const;

 private:
  // The steps that a product applies to its sums.
  struct Epilogue {
    bool activate = false;
    Activation activation = {};
    BufferId gate = kNoBuffer;
  };
  // A layer of the library; layer is nullptr if it does not compute it.
  struct LibraryLayer {
    const DenseFamily* layer = nullptr;
    bool includes_next = false;
  };

  // A layer that our kernels compute.
  template <typename Operand>
  struct OwnLayer {
    LinearOp op;
    int32_t k, n;
    const T* bias;
    Epilogue then;
    const Operand* weight;          // packed
    const float* scales = nullptr;  // for int8

    kernels::cuda::ProjectionArgs<T, T, Operand> ArgsAt(const StepPlace<T>& place) const;
  };

  static Epilogue EpilogueOf(const ActivationOp* then, BufferId out);
  // Lowers the layer of a router, whose logits are float.
  absl::StatusOr<CudaOp<T>> Router(const LinearOp& op);
  // Lowers a layer in int8.
  absl::StatusOr<LoweredLayer<T>> Int8Product(const LinearOp& op, const T* bias,
                                              const Epilogue& then);
  CudaOp<T> Int8ByLibrary(const LinearOp& op, const DenseFamily& layer, const Int8Weight& weight,
                          const T* bias);
  absl::StatusOr<OwnLayer<int8_t>> OwnInt8(const LinearOp& op, const Int8Weight& weight,
                                           const T* bias, const Epilogue& then);
  absl::StatusOr<CudaOp<T>> GatedInt8(const GatedLayers& layers);
  // Returns the quantisation of the rows that the op reads, unless the previous layer has done it.
  CudaOp<T> Quantizer(const LinearOp& op);
  absl::StatusOr<CudaOp<T>> OwnProduct(const LinearOp& op, const T* plain, const T* bias,
                                       const Epilogue& then);
  // Returns the layer with the weight in a layout.
  absl::StatusOr<OwnLayer<T>> Packed(const LinearOp& op, const T* plain, const T* bias,
                                     const Epilogue& then, kernels::cuda::WeightLayout layout);
  GroupedProductShape ShapeOfOwn(const LinearOp& op, const T* bias, const Epilogue& then) const;
  absl::StatusOr<const GroupedProductCandidate<T>*> Kernel(const GroupedProductShape& shape,
                                                           const T* weight, const T* bias,
                                                           const GateWeights<T>& gate = {});
  absl::StatusOr<LibraryLayer> FindInLibrary(const LinearOp& op, const T* weight, const T* bias,
                                             const ActivationOp* then);
  // Counts a layer's multiply-adds of a row. `shape` is the layer's in the library, or nullptr.
  void Count(const LinearOp& op, const DenseShape* shape);
  int32_t Width(BufferId id) const { return static_cast<int32_t>(graph_.buffers[id].width); }
  // Returns the rows of each token.
  int64_t Rows(BufferId id) const { return graph_.buffers[id].rows; }

  const Model& model_;
  const Graph& graph_;
  DeviceWeights& weights_;
  OpWeights& of_ops_;
  DenseLayers* const dense_;           // nullptr if there are none
  SelectedKernels<T>* const kernels_;  // nullptr if the portable ones serve without a trial
  bool uses_library_ = false;
  size_t workspace_bytes_ = 0;   // the most that a layer takes
  int64_t quantized_width_ = 0;  // the most values of a token that a layer quantises
  int32_t int8_width_ = 0;       // of the widest layer in int8 of the library
  double multiply_adds_ = 0;     // of a row in all layers
  // The same in layers that the library computes, by the slice and the least rows of its shapes.
  std::map<std::pair<int32_t, int32_t>, double> of_library_;
  BufferId quantized_ = kNoBuffer;  // the buffer whose rows are quantised at this point
};

}  // namespace sluice
