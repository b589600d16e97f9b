// Lowers the graph of a model to launches of CUDA kernels.
#pragma once

#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/cuda/cuda_head.h"
#include "engine/cuda/dense_layers.h"
#include "engine/cuda/device_weights.h"
#include "engine/cuda/selected_kernels.h"
#include "engine/cuda/step_layout.h"
#include "engine/model/model.h"
#include "kernels/cuda/attention.h"
#include "kernels/cuda/kv_cache.h"
#include "kernels/cuda/matrix_tables.h"
#include "kernels/cuda/route.h"
#include "kernels/cuda/row_tiles.h"
#include "kernels/simt/stream.h"

namespace sluice {

// The memory of one slot that the launches of one bucket use. All of it is fixed when a graph is
// captured.
template <typename T>
struct StepPlace {
  const StepLayout& layout;
  const Bucket& bucket;
  char* arena;
  std::vector<kernels::cuda::KvLayer<T>> kv;  // per layer
  // The outcomes of the sampled rows of the step before; nullptr if the model has no head.
  const kernels::cuda::SampleOutcome* drawn = nullptr;

  template <typename U>
  U* at(int64_t offset) const {
    return reinterpret_cast<U*>(arena + offset);
  }
  T* buffer(BufferId id) const { return at<T>(layout.buffers[id]); }
  // Returns a reference to device memory.
  const StepCounts& counts() const { return *at<const StepCounts>(layout.counts); }
  void* workspace() const { return arena + layout.workspace; }
  kernels::cuda::LiveRows rows() const { return {&counts().rows, bucket.tokens}; }
  // Returns the rows of a buffer that has `rows_each` rows of each token.
  kernels::cuda::LiveRows rows(int64_t rows_each) const {
    return rows_each == 1 ? rows() : routes().copies();
  }
  kernels::cuda::RowTiles dense_tiles() const {
    return {at<const kernels::RowGroup>(layout.dense_tiles), &counts().dense_tiles,
            layout.max_dense_tiles, /*one_group=*/true, kernels::cuda::MaxTileRows(bucket.tokens)};
  }
  kernels::cuda::RowTiles group_tiles() const {
    return {at<const kernels::RowGroup>(layout.group_tiles), &counts().group_tiles,
            layout.max_group_tiles, /*one_group=*/false, kernels::cuda::MaxTileRows(bucket.tokens)};
  }
  kernels::cuda::Routes routes() const {
    return kernels::cuda::Routes::At(arena + layout.routes, bucket.tokens, layout.experts,
                                     layout.chosen);
  }
  kernels::cuda::RowTiles adapter_tiles() const {
    return {at<const kernels::RowGroup>(layout.adapter_tiles), &counts().adapter_tiles,
            layout.max_adapter_tiles, /*one_group=*/false,
            kernels::cuda::MaxTileRows(bucket.tokens)};
  }
  // Returns the matrices with this place in the tables of the step's adapters.
  kernels::cuda::MatrixTables adapters(int32_t matrix_place) const {
    return {at<const kernels::cuda::PlacedMatrix* const>(layout.adapter_tables), matrix_place};
  }
  // Returns the tiles of a layer's rows.
  kernels::cuda::RowTiles tiles(MatrixIndex index) const {
    switch (index) {
      case MatrixIndex::kNone:
        break;
      case MatrixIndex::kPosition:
        return group_tiles();
      case MatrixIndex::kExpert:
        return routes().row_tiles();
    }
    return dense_tiles();
  }
  kernels::cuda::AttentionTiles attention_tiles() const {
    return {at<const kernels::cuda::AttentionTile>(layout.attention_tiles),
            &counts().attention_tiles, &at<StepCounts>(layout.counts)->attention_taken,
            layout.max_attention_tiles,
            static_cast<int32_t>(kernels::cuda::MaxAttentionRecords(layout.attention))};
  }
};

// Launches the kernels of one op.
template <typename T>
using CudaOp = std::function<void(const StepPlace<T>& place, DeviceStream& stream)>;

template <typename T>
struct LoweredCudaModel {
  Graph graph;                 // with joined projections
  std::vector<CudaOp<T>> ops;  // all but the head
  HeadWeights<T> head;
  bool uses_library = false;    // for layers other than the head
  size_t workspace_bytes = 0;   // the most that a product takes
  int64_t quantized_width = 0;  // the most values of a token that are quantised to int8
  int64_t int8_width = 0;       // of the widest layer in int8 of the library
  int64_t adapted_width = 0;    // the largest rank of an op of an adapter; 0 without adapters
  int32_t processors = 0;       // of the device
  ComputedRows computed_rows;

  StepLayout LayOut(const Model& model, const Bucket& bucket) const {
    const int64_t rows = uses_library ? DenseRows(bucket.tokens) : bucket.tokens;
    return LayOutStep(model.config, graph, bucket, rows,
                      {.element_bytes = sizeof(T),
                       .workspace_bytes = static_cast<int64_t>(workspace_bytes),
                       .processors = processors,
                       .quantized_width = quantized_width,
                       .int8_width = int8_width,
                       .adapted_width = adapted_width});
  }
  void Launch(const StepPlace<T>& place, DeviceStream& stream) const {
    for (const CudaOp<T>& cuda_op : ops) cuda_op(place, stream);
  }
};

// Checks every tensor by name, shape and dtype and copies it to `weights`. The checkpoint is not
// needed afterwards. With `dense`, the library computes the dense layers that it has an algorithm
// for. With `kernels`, the kernels that it chooses compute attention and the other products;
// otherwise the portable ones do, without a trial. The ops refer to both.
template <typename T>
absl::StatusOr<LoweredCudaModel<T>> LowerToCuda(const Model& model, DeviceWeights& weights,
                                                DenseLayers* dense,
                                                SelectedKernels<T>* kernels = nullptr);

}  // namespace sluice
